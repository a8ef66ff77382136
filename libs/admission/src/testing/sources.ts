import { CertificateAuthority } from '@isthmus/certificates';
import { keyPair } from '@isthmus/runtime/testing';
import { credentialFiles, readCredential } from '../credentials.ts';
import { readTenantFile } from '../tenant-file/read.ts';
import { type TenantSource, Tenants } from '../tenants.ts';
import { DAY } from './world.ts';

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
