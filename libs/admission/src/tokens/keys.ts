import { createHash, createPublicKey, type KeyObject } from 'node:crypto';
import { exportJWK, type JWK } from 'jose';

/** The most keys of one issuer. Rotation needs two or three. */
const MOST_KEYS = 20;

/**
 * The longest modulus and exponent of an RSA key, in bits: a verification by the largest that OpenSSL takes costs a hundred times as much,
 * and a tenant chooses its keys. RSA keys of issuers have 2048 to 4096 bits, and the exponent 65537.
 */
const LONGEST_RSA = { modulus: 8192, exponent: 32 };

/** A public key of an issuer. */
export interface TokenKey {
  /** The key id that a token names. Undefined: the key has none. */
  readonly id: string | undefined;
  /** Whether the issuer gave it its id. A token may call any other key by an id of its own. */
  readonly named: boolean;
  readonly jwk: JWK;
}

/** An issuer's public keys. */
export type TokenKeys = readonly TokenKey[];

/**
 * Reads public keys: a JWKS (RFC 7517 section 5), or PEM with one or more public keys or certificates.
 * @throws Error if there is no key, or too many
 */
export async function readTokenKeys(text: string): Promise<TokenKeys> {
  const keys = text.trimStart().startsWith('{') ? jwksOf(text) : await Promise.all(pemKeys(text).map(tokenKeyOf));
  if (keys.length === 0) throw new Error('there is no public key in it: expected a JWKS, or PEM');
  for (const { jwk } of keys) checkSize(jwk);
  if (keys.length > MOST_KEYS) throw new Error(`there are ${keys.length} keys in it: at most ${MOST_KEYS} are allowed`);
  return keys;
}

/** @throws Error if it is an RSA key that costs too much */
function checkSize({ n = '', e = '' }: JWK): void {
  const [modulus, exponent] = [n, e].map((text) => Buffer.from(text, 'base64url').length * 8) as [number, number];
  if (modulus > LONGEST_RSA.modulus || exponent > LONGEST_RSA.exponent)
    throw new Error(
      `there is an RSA key of ${modulus} bits with an exponent of ${exponent}: at most ${LONGEST_RSA.modulus} and ${LONGEST_RSA.exponent} are allowed`,
    );
}

/** Keys of a kind that we do not know are skipped, as the RFC asks, and so are those for encryption, and secrets. */
function jwksOf(text: string): TokenKey[] {
  const { keys } = JSON.parse(text) as { keys?: unknown };
  if (!Array.isArray(keys)) throw new Error('it is JSON without "keys": expected a JWKS');
  return keys.filter(isSignatureKey).map((jwk) => ({ id: jwk.kid, named: jwk.kid !== undefined, jwk }));
}

const KINDS: readonly unknown[] = ['RSA', 'EC', 'OKP'];

function isSignatureKey(value: unknown): value is JWK {
  if (typeof value !== 'object' || value === null) return false;
  const { kty, use, kid } = value as JWK;
  return KINDS.includes(kty) && use !== 'enc' && (kid === undefined || typeof kid === 'string');
}

const PEM = /-----BEGIN (PUBLIC KEY|RSA PUBLIC KEY|CERTIFICATE)-----[A-Za-z0-9+/=\s]+-----END \1-----/g;

function pemKeys(text: string): KeyObject[] {
  return (text.match(PEM) ?? []).map((pem) => createPublicKey(pem));
}

/** PEM has no key ids. The one here is what Kubernetes' API servers put into their tokens (pkg/serviceaccount/jwt.go). */
async function tokenKeyOf(key: KeyObject): Promise<TokenKey> {
  const der = key.export({ format: 'der', type: 'spki' });
  return { id: createHash('sha256').update(der).digest('base64url'), named: false, jwk: await exportJWK(key) };
}

/** What makes a key that key: keys with the same text are one. */
export function keyText({ jwk: { kty, crv, n, e, x, y } }: TokenKey): string {
  return JSON.stringify([kty, crv, n, e, x, y]);
}

export function isSameKey({ jwk: a }: TokenKey, { jwk: b }: TokenKey): boolean {
  return a.x === b.x && a.n === b.n && a.kty === b.kty && a.crv === b.crv && a.e === b.e && a.y === b.y;
}
