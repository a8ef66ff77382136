import { createHash } from 'node:crypto';
import { CertificatePool, isKeyOf, missingPurpose, type RevocationList, readRevocationLists } from '@isthmus/runtime';
import { Revocations } from './certificates/revocation.ts';
import { TrustSet } from './certificates/trust-set.ts';
import type { Problem, UsableFile } from './tenant-file/read.ts';
import type { TenantFile } from './tenant-file/schema.ts';
import { readTokenKeys, type TokenKeys } from './tokens/keys.ts';
import { apiServerIn } from './tokens/review-rules.ts';

/** The largest file that a tenant's file names, in bytes. */
export const MAX_CREDENTIAL_FILE = 1024 * 1024;

/** The largest file of revocation lists, in bytes: 100,000 certificates. */
const MAX_REVOCATIONS_FILE = 4 * 1024 * 1024;

/** A file that a tenant's file names. */
export interface CredentialFile {
  /** Where it is named: `agents[0].certificates.ca`. */
  readonly at: string;
  readonly path: string;
  readonly kind: 'trust' | 'keys' | 'text' | 'kubeconfig' | 'revoked';
  /** The most bytes that it may have. */
  readonly most: number;
}

/** What such a file holds, by its kind. */
export interface Credential {
  readonly trust?: TrustSet;
  readonly keys?: TokenKeys;
  readonly text?: string;
  /** The URL of a kubeconfig's API server, if it names one. */
  readonly apiServer?: string | undefined;
  /** Of a kubeconfig: says whether it changed, and holds none of its secrets. */
  readonly digest?: string;
  readonly revoked?: readonly RevocationList[];
}

/** By place; an Error where a file cannot be used. */
export type ReadCredentials = ReadonlyMap<string, Credential | Error>;

/** The files that a tenant's file names, in its order. */
export function credentialFiles({ server, agents = [], callers = [] }: TenantFile): CredentialFile[] {
  const found: CredentialFile[] = [];
  const add = (kind: CredentialFile['kind'], at: string, path: string | undefined) => {
    const most = kind === 'revoked' ? MAX_REVOCATIONS_FILE : MAX_CREDENTIAL_FILE;
    if (path !== undefined) found.push({ at, path, kind, most });
  };
  add('text', 'server.certificate', server?.certificate);
  add('text', 'server.key', server?.key);
  for (const [index, { certificates, tokens, tokenReview }] of agents.entries()) {
    add('trust', `agents[${index}].certificates.ca`, certificates?.ca);
    add('revoked', `agents[${index}].certificates.crl`, certificates?.crl);
    add('keys', `agents[${index}].tokens.keys`, tokens?.keys);
    add('text', `agents[${index}].tokens.ca`, tokens?.ca);
    add('kubeconfig', `agents[${index}].tokenReview.kubeconfig`, tokenReview?.kubeconfig);
  }
  for (const [index, { certificates }] of callers.entries()) {
    add('trust', `callers[${index}].certificates.ca`, certificates?.ca);
    add('revoked', `callers[${index}].certificates.crl`, certificates?.crl);
  }
  return found;
}

/** @throws Error that says what is wrong with the content */
export async function readCredential(kind: CredentialFile['kind'], content: Buffer): Promise<Credential> {
  if (kind === 'revoked') return { revoked: readRevocationLists(content) };
  const text = content.toString('utf8');
  if (kind === 'trust') return { trust: new TrustSet(text) };
  if (kind === 'kubeconfig') {
    return { apiServer: apiServerIn(text), digest: createHash('sha256').update(text).digest('base64') };
  }
  return kind === 'keys' ? { keys: await readTokenKeys(text) } : { text };
}

/** The contents of the files that a tenant's file names, by where it names them. */
export class Credentials {
  readonly #read: ReadCredentials;

  constructor(read: ReadCredentials) {
    this.#read = read;
  }

  trust(at: string): TrustSet | undefined {
    return this.#at(at)?.trust;
  }

  /**
   * What is revoked at a place such as `agents[0].certificates`; undefined if there is no list.
   * @throws Error if no authority there signed it
   */
  revocations(at: string): Revocations | undefined {
    const lists = this.#at(`${at}.crl`)?.revoked;
    const trust = this.trust(`${at}.ca`);
    return lists && trust && new Revocations(lists, trust);
  }

  keys(at: string): TokenKeys | undefined {
    return this.#at(at)?.keys;
  }

  text(at: string): string | undefined {
    return this.#at(at)?.text;
  }

  apiServer(at: string): string | undefined {
    return this.#at(at)?.apiServer;
  }

  digest(at: string): string | undefined {
    return this.#at(at)?.digest;
  }

  #at(at: string): Credential | undefined {
    const found = this.#read.get(at);
    return found instanceof Error ? undefined : found;
  }
}

/** Why a tenant's file cannot be used with the files that it names. */
export function credentialProblems({ file, problem }: UsableFile, read: ReadCredentials): Problem[] {
  const problems = credentialFiles(file).flatMap(({ at, path }): Problem[] => {
    const found = read.get(at);
    if (found && !(found instanceof Error)) return [];
    return [problem(at, `${path}: ${found?.message ?? 'it was not read'}`)];
  });
  if (problems.length > 0) return problems;
  const credentials = new Credentials(read);
  const unsigned = credentialFiles(file).flatMap(({ at, path, kind }): Problem[] => {
    if (kind !== 'revoked') return [];
    try {
      credentials.revocations(at.replace(/\.crl$/, ''));
      return [];
    } catch (error) {
      return [problem(at, `${path}: ${(error as Error).message}`)];
    }
  });
  if (unsigned.length > 0 || !file.server) return unsigned;
  const fault = faultOfPair(credentials.text('server.certificate') ?? '', credentials.text('server.key') ?? '');
  return fault === undefined ? [] : [problem(`server.${fault.of}`, `${file.server[fault.of]}: ${fault.why}`)];
}

interface PairFault {
  readonly of: 'certificate' | 'key';
  readonly why: string;
}

function faultOfPair(certificate: string, key: string): PairFault | undefined {
  const of = (name: PairFault['of'], why: string) => ({ of: name, why });
  const [leaf] = CertificatePool.of(certificate).all;
  if (!leaf) return of('certificate', 'there is no certificate (PEM) in it');
  if (missingPurpose(leaf, 'server')) return of('certificate', 'its extended key usage lacks serverAuth');
  try {
    if (isKeyOf(key, leaf)) return undefined;
  } catch {
    return of('key', 'there is no usable private key (PEM) in it');
  }
  return of('key', 'the key does not match the certificate');
}
