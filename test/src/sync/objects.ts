import { generateKeyPairSync } from 'node:crypto';
import { CertificateAuthority } from '@isthmus/certificates';

const DAY_MS = 86_400_000;

/** A new CA's certificate. */
export async function newCa(name = 'kubernetes'): Promise<string> {
  return (await CertificateAuthority.create(name, DAY_MS)).cert;
}

/** A new key of an issuer of tokens: the public one. */
export function newKey(): string {
  const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return publicKey.export({ type: 'spki', format: 'pem' }).toString();
}

export function namespaceOf(name: string): object {
  return { apiVersion: 'v1', kind: 'Namespace', metadata: { name } };
}

export function secretOf(
  namespace: string,
  name: string,
  values: Readonly<Record<string, string>>,
  metadata: object = { labels: { 'isthmus.dev/plane': 'isthmus' } },
): object {
  const data = Object.fromEntries(
    Object.entries(values).map(([key, value]) => [key, Buffer.from(value).toString('base64')]),
  );
  return { apiVersion: 'v1', kind: 'Secret', metadata: { namespace, name, ...metadata }, data };
}

export function tenantOf(namespace: string, name: string, spec: object, annotations: object = {}): object {
  return { apiVersion: 'isthmus.dev/v1alpha1', kind: 'Tenant', metadata: { namespace, name, annotations }, spec };
}

/** A tenant with agents of a CA, and the secret with that CA. */
export async function tenantWithCa(namespace: string, name: string, more: object = {}): Promise<[object, object]> {
  const agents = [{ certificates: { ca: { secretRef: { name, key: 'ca.crt' } } } }];
  return [secretOf(namespace, name, { 'ca.crt': await newCa() }), tenantOf(namespace, name, { agents, ...more })];
}
