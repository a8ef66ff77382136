import { CertificateAuthority, type Hosts } from '@isthmus/certificates';
import { type Certificate, CertificatePool, type Presented } from '@isthmus/runtime';
import { keyPair } from '@isthmus/runtime/testing';
import { credentialFiles, readCredential } from './credentials.ts';
import { readTenantFile } from './tenant-file.ts';
import { type TenantSource, Tenants } from './tenants.ts';

export const DAY = 86_400_000;

export interface Issue {
  /** SPIFFE IDs, or other URIs. */
  readonly uris?: readonly string[];
  readonly uses?: readonly ('client' | 'server')[];
  readonly validMs?: number;
  readonly notBeforeMs?: number;
  /** What the peer sends behind its certificate. */
  readonly sent?: readonly CertificateAuthority[];
}

/** A client's certificate of an authority, as a peer shows it. */
export async function shownBy(
  authority: CertificateAuthority,
  commonName: string,
  { uris, uses = ['client'], validMs = DAY, notBeforeMs, sent = [] }: Issue = {},
): Promise<Presented> {
  const hosts: Hosts | undefined = uris?.map((value) => ({ type: 'url', value }));
  const { cert } = await authority.issue({ commonName, validMs, notBeforeMs, uses, ...(hosts && { hosts }) });
  return { leaf: read(cert), sent: sent.map((each) => read(each.cert)) };
}

export function read(pem: string): Certificate {
  return CertificatePool.of(pem).all[0] as Certificate;
}

/** Texts of files by path. */
type Texts = Readonly<Record<string, string>>;

/** A tenant's file and the files that it names, as a directory of tenants would have them. */
export async function sourceOf(text: string, files: Texts = {}): Promise<TenantSource> {
  const read = readTenantFile(text);
  if ('problems' in read) return { read, credentials: new Map() };
  const credentials = credentialFiles(read.file).map(async ({ at, path, kind }) => {
    const content = Buffer.from(files[path] ?? '');
    return [at, await readCredential(kind, content).catch((error: Error) => error)] as const;
  });
  return { read, credentials: new Map(await Promise.all(credentials)) };
}

/** Tenants' files by name. */
export async function sourcesOf(texts: Texts, files: Texts = {}): Promise<ReadonlyMap<string, TenantSource>> {
  const all = Object.entries(texts).map(async ([path, text]) => [path, await sourceOf(text, files)] as const);
  return new Map(await Promise.all(all));
}

/** @throws Error with the problems of files that cannot be used */
export async function tenantsOf(texts: Texts, files: Texts = {}): Promise<Tenants> {
  const tenants = new Tenants();
  tenants.update(await sourcesOf(texts, files));
  if (tenants.problems.length > 0) throw new Error(JSON.stringify(tenants.problems));
  return tenants;
}

/** A server certificate and its key, as the files `c` and `k`. */
export async function serverFiles() {
  const authority = await CertificateAuthority.create('servers', DAY);
  const { cert, key } = await authority.issue({ commonName: 'server', validMs: DAY, uses: ['server'] });
  return { c: cert, k: key };
}

/** In PEM. */
export function publicKey(): string {
  return keyPair().publicKey.export({ format: 'pem', type: 'spki' }) as string;
}
