import { createHash } from 'node:crypto';
import { serverIn, type TokenUsers } from '@isthmus/kube';
import { checkedPem, missingPurpose, type RevocationList, readRevocationLists, UnusablePem } from '@isthmus/runtime';
import type { Principal } from '@isthmus/tunnel';
import { Revocations, TrustSet } from './certificate-trust.ts';
import { ADMISSION } from './defaults.ts';
import type { Problem, UsableFile } from './tenant-file.ts';
import type { TenantFile } from './tenant-schema.ts';
import { readTokenKeys, type TokenKeys } from './tokens.ts';

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
  /** The URL of a kubeconfig's API server. */
  readonly apiServer?: string;
  /** Of a kubeconfig: says whether it changed, and holds none of its secrets. */
  readonly digest?: string;
  /** Why a kubeconfig leads to no API server: what needs it does not work. */
  readonly fault?: string;
  readonly revoked?: readonly RevocationList[];
}

/** By place; an Error where a file cannot be used. */
export type ReadCredentials = ReadonlyMap<string, Credential | Error>;

/** The files that a tenant's file names, in its order. */
export function credentialFiles({ server, agents = [], callers = [], scrape = [] }: TenantFile): CredentialFile[] {
  const found: CredentialFile[] = [];
  const add = (kind: CredentialFile['kind'], at: string, path: string | undefined) => {
    const most = kind === 'revoked' ? ADMISSION.revocationsFileBytes : ADMISSION.credentialFileBytes;
    if (path !== undefined) found.push({ at, path, kind, most });
  };
  add('text', 'server.certificate', server?.certificate);
  add('text', 'server.key', server?.key);
  for (const [list, ways] of Object.entries({ agents, callers })) {
    for (const [index, { certificates, tokens, tokenReview }] of ways.entries()) {
      const at = `${list}[${index}]`;
      add('trust', `${at}.certificates.ca`, certificates?.ca);
      add('revoked', `${at}.certificates.crl`, certificates?.crl);
      add('keys', `${at}.tokens.keys`, tokens?.keys);
      add('text', `${at}.tokens.ca`, tokens?.ca);
      add('kubeconfig', `${at}.tokenReview.kubeconfig`, tokenReview?.kubeconfig);
    }
  }
  for (const [index, { nodes }] of scrape.entries())
    add('kubeconfig', `scrape[${index}].nodes.kubeconfig`, nodes?.kubeconfig);
  return found;
}

/** @throws Error that says what is wrong with the content */
export async function readCredential(kind: CredentialFile['kind'], content: Buffer): Promise<Credential> {
  if (kind === 'revoked') return { revoked: readRevocationLists(content) };
  const text = content.toString('utf8');
  if (kind === 'trust') return { trust: new TrustSet(text) };
  if (kind === 'kubeconfig') {
    const digest = createHash('sha256').update(text).digest('base64');
    return serverIn(text).then(
      (apiServer) => ({ apiServer, digest }),
      ({ message: fault }: Error) => ({ digest, fault }),
    );
  }
  return kind === 'keys' ? { keys: await readTokenKeys(text) } : { text };
}

/** The contents of the files that a tenant's file names, by where it names them. */
export class Credentials {
  readonly #read: ReadCredentials;

  constructor(read: ReadCredentials) {
    this.#read = read;
  }

  /** What the file holds that is named at a place; nothing if it cannot be used. */
  file(place: string): Credential {
    const found = this.#read.get(place);
    return found === undefined || found instanceof Error ? {} : found;
  }

  /**
   * What is revoked at a place such as `agents[0].certificates`; undefined if there is no list.
   * @throws Error if no authority there signed it
   */
  revocations(place: string): Revocations | undefined {
    const { revoked } = this.file(`${place}.crl`);
    const { trust } = this.file(`${place}.ca`);
    return revoked && trust && new Revocations(revoked, trust);
  }
}

/** Why what needs a kubeconfig does not work, of a file that is in force. */
export function kubeconfigFaults({ file, problem }: UsableFile, credentials: Credentials): Problem[] {
  return credentialFiles(file).flatMap(({ at, path }) => {
    const { fault } = credentials.file(at);
    return fault === undefined ? [] : problem(at, `${path}: ${fault}`);
  });
}

/**
 * Why a tenant's file cannot be used with the files that it names. A kubeconfig that leads nowhere is only a reason if it did before.
 * @param before what is in force
 */
export function credentialProblems(
  { file, problem }: UsableFile,
  read: ReadCredentials,
  before: Credentials | undefined,
): Problem[] {
  const problems = credentialFiles(file).flatMap(({ at, path }): Problem[] => {
    const found = read.get(at) ?? new Error('it was not read');
    const turned = before?.file(at).apiServer !== undefined;
    const why = found instanceof Error ? found.message : turned ? found.fault : undefined;
    return why === undefined ? [] : [problem(at, `${path}: ${why}`)];
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
  const [cert, key] = [credentials.file('server.certificate').text, credentials.file('server.key').text];
  try {
    const leaf = checkedPem({ cert, key });
    if (!leaf || !missingPurpose(leaf, 'server')) return [];
    throw new UnusablePem('cert', 'its extended key usage lacks serverAuth');
  } catch (error) {
    if (!(error instanceof UnusablePem)) throw error;
    const at = error.of === 'key' ? 'key' : 'certificate';
    return [problem(`server.${at}`, `${file.server[at]}: ${error.message}`)];
  }
}

/** A way in by certificate, as a tenant's file lists it. */
export interface CertificateWay {
  /** `agents[0].certificates`. */
  readonly at: string;
  /** `acme.yaml: agents[0].certificates`. */
  readonly rule: string;
  /** Unset: the program's own CA bundle verifies. */
  readonly trust: TrustSet | undefined;
  /** The trust domain that SPIFFE IDs must have. Unset: common names will do. */
  readonly trustDomain: string | undefined;
  /** Certificates that are revoked. Unset: the file names no list. */
  readonly revocations: Revocations | undefined;
  /** Whether other tenants may have the same authorities. */
  readonly shared: boolean;
  /** The only names allowed. Unset: all. */
  readonly names: ReadonlySet<string> | undefined;
}

/**
 * Lists the ways in by certificate for agents, or for callers.
 * @param path of the tenant's file
 * @throws Error if a revocation list is not of the CA beside it
 */
export function certificateWays(
  path: string,
  file: TenantFile,
  role: Principal['role'],
  credentials: Credentials,
): CertificateWay[] {
  const list = `${role}s` as const;
  return (file[list] ?? []).flatMap(({ certificates }, index) => {
    if (!certificates) return [];
    const at = `${list}[${index}].certificates`;
    const { names } = certificates as { readonly names?: readonly string[] };
    return {
      at,
      rule: `${path}: ${at}`,
      trust: credentials.file(`${at}.ca`).trust,
      trustDomain: certificates.trustDomain,
      revocations: credentials.revocations(at),
      shared: certificates.shared ?? false,
      names: names && new Set(names),
    };
  });
}

/** Where a tenant's tokens are reviewed, and whose they must be. */
export interface ReviewRules {
  /** Path. */
  readonly kubeconfig: string;
  readonly audience: string;
  /** Agents are of one service account. */
  readonly users: TokenUsers;
  readonly shared: boolean;
}

/** What reviewed tokens of agents must be for, and whose, unless a tenant's file says something else: what ANP's manifests have. */
const AGENT_REVIEW = {
  audience: 'system:konnectivity-server',
  namespace: 'kube-system',
  serviceAccount: 'konnectivity-agent',
} as const;

/** The audience of callers' reviewed tokens. Any workload of a cluster can get a token for it, so the names decide. */
const CALLER_AUDIENCE = 'isthmus';

/** The entries `tokenReview` for agents or for callers, and where each stands: `agents[0].tokenReview`. */
export function reviewRules(file: TenantFile, role: Principal['role']): (ReviewRules & { readonly at: string })[] {
  if (role === 'agent')
    return (file.agents ?? []).flatMap(({ tokenReview }, index) => {
      if (!tokenReview) return [];
      const { kubeconfig, audience, shared = false, ...users } = { ...AGENT_REVIEW, ...tokenReview };
      return { kubeconfig, audience, users, shared, at: `agents[${index}].tokenReview` };
    });
  return (file.callers ?? []).flatMap(({ tokenReview }, index) => {
    if (!tokenReview) return [];
    const { kubeconfig, audience = CALLER_AUDIENCE, names: users, shared = false } = tokenReview;
    return { kubeconfig, audience, users, shared, at: `callers[${index}].tokenReview` };
  });
}
