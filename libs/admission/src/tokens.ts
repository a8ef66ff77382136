import { createHash, createPublicKey, type KeyObject, X509Certificate } from 'node:crypto';
import { pemBlocks } from '@isthmus/runtime';
import { decodeJwt, decodeProtectedHeader, errors, exportJWK, type JWK, jwtVerify } from 'jose';
import { ADMISSION } from './defaults.ts';

/** What a token must say. */
export interface TokenRules {
  readonly issuer: string;
  readonly audience: string;
  /** The only subject allowed. Unset: any. */
  readonly subject?: string;
}

/** A token that was not accepted. The message says why, and holds nothing of the token but its claims. */
export class TokenRejected extends Error {
  override readonly name = 'TokenRejected';
}

/** A text of another form than a signed JWT. An agent has nothing else; what a caller has may be anything. */
export class NoJwt extends TokenRejected {}

/** What a token says before anyone has verified it. It only chooses who verifies it. */
export interface SaidByToken {
  readonly issuer: string;
  readonly audiences: readonly string[];
  readonly subject: string;
  /** The id of the key that signed it. */
  readonly keyId: string | undefined;
  /** Milliseconds since the epoch. Undefined: it says nothing of its end. */
  readonly expires: number | undefined;
}

/** @throws TokenRejected if it is no signed JWT */
export function readToken(token: string): SaidByToken {
  if (token.length > ADMISSION.tokenCharacters)
    throw new TokenRejected(`a token of ${token.length} characters: at most ${ADMISSION.tokenCharacters} are allowed`);
  const said = decoded(token);
  if (said.audiences.length > ADMISSION.audiences)
    throw new TokenRejected(`it has ${said.audiences.length} audiences: at most ${ADMISSION.audiences} are allowed`);
  return said;
}

function decoded(token: string): SaidByToken {
  try {
    const { kid } = decodeProtectedHeader(token);
    const { iss, aud = [], sub, exp } = decodeJwt(token);
    return {
      issuer: textOf(iss),
      audiences: [aud].flat().map(textOf),
      subject: textOf(sub),
      keyId: kid === undefined ? undefined : textOf(kid),
      expires: typeof exp === 'number' ? exp * 1000 : undefined,
    };
  } catch (cause) {
    throw new NoJwt('it is not a signed JWT', { cause });
  }
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

/** Whether a token with these claims meets the rules. Cheap: a thousand tenants may have its issuer. */
export function meets(
  { issuer, audiences, subject }: Omit<SaidByToken, 'keyId' | 'expires'>,
  rules: TokenRules,
): boolean {
  if (rules.subject !== undefined && rules.subject !== subject) return false;
  return rules.issuer === issuer && audiences.includes(rules.audience);
}

/** Why a token of the issuer does not meet its rules. */
export function claimsFault({ audiences, subject }: SaidByToken, rules: TokenRules): string {
  if (!audiences.includes(rules.audience))
    return `its aud is ${quoted(audiences.join(' '))}, expected ${quoted(rules.audience)}`;
  return `its sub is ${quoted(subject)}, expected ${quoted(rules.subject ?? '')}`;
}

export function quoted(text: string): string {
  return JSON.stringify(text.slice(0, ADMISSION.quoteCharacters));
}

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
  if (keys.length > ADMISSION.issuerKeys)
    throw new Error(`there are ${keys.length} keys in it: at most ${ADMISSION.issuerKeys} are allowed`);
  return keys;
}

/** @throws Error if it is an RSA key that costs too much */
function checkSize({ n = '', e = '' }: JWK): void {
  if (typeof n !== 'string' || typeof e !== 'string')
    throw new Error('there is an RSA key in it whose n or e is no text');
  const [modulus, exponent] = [n, e].map((text) => Buffer.from(text, 'base64url').length * 8) as [number, number];
  if (modulus > ADMISSION.issuerRsaBits || exponent > ADMISSION.issuerExponentBits)
    throw new Error(
      `there is an RSA key of ${modulus} bits with an exponent of ${exponent}: at most ${ADMISSION.issuerRsaBits} and ${ADMISSION.issuerExponentBits} are allowed`,
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

const KEY_BLOCKS = ['PUBLIC KEY', 'RSA PUBLIC KEY', 'CERTIFICATE'] as const;

function pemKeys(text: string): KeyObject[] {
  const blocks = pemBlocks(text, ...KEY_BLOCKS);
  return blocks.map(({ label, bytes }, index) => {
    if (!bytes) throw new Error(`key ${index + 1} of ${blocks.length} in it is damaged, or has no end`);
    if (label === 'CERTIFICATE') return new X509Certificate(bytes).publicKey;
    return createPublicKey({ key: bytes, format: 'der', type: label === 'PUBLIC KEY' ? 'spki' : 'pkcs1' });
  });
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

/** Signatures with a public key. HMAC is not among them: a verifier that knows the key could also sign. */
const ALGORITHMS = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
];

/** What a token says that was verified. */
export interface VerifiedToken {
  readonly subject: string;
  /** Milliseconds since the epoch. */
  readonly expires: number;
}

/** None of the keys has the token's key id. The issuer may have newer ones. */
export class UnknownKey extends TokenRejected {}

/** The key did not sign the token, or is of another kind. Another key may have. */
export class OtherKey extends TokenRejected {}

/**
 * Verifies a token, which says that it `meets` the rules, without asking anyone. Rejects with OtherKey, or with TokenRejected if no other key
 * would do either.
 */
export async function verifyToken(token: string, rules: TokenRules, { jwk }: TokenKey): Promise<VerifiedToken> {
  try {
    const { payload } = await jwtVerify(token, jwk, {
      ...rules,
      algorithms: ALGORITHMS,
      clockTolerance: ADMISSION.clockToleranceSeconds,
      requiredClaims: ['exp', 'sub'],
    });
    const { sub = '', exp = 0 } = payload;
    return { subject: sub, expires: exp * 1000 };
  } catch (cause) {
    const isAboutKey = cause instanceof errors.JWSSignatureVerificationFailed || !(cause instanceof errors.JOSEError);
    if (isAboutKey) throw new OtherKey('its signature does not match', { cause });
    throw new TokenRejected(reasonOf(cause), { cause });
  }
}

function reasonOf(error: unknown): string {
  if (error instanceof errors.JWTExpired)
    return `it expired at ${new Date(Math.max(0, error.payload.exp ?? 0) * 1000).toISOString()} by the clock here`;
  if (error instanceof errors.JWTClaimValidationFailed) {
    if (error.claim === 'nbf') return 'it is not valid yet: is the clock right?';
    return error.reason === 'missing' ? `it has no ${error.claim}` : `its ${error.claim} is not as expected`;
  }
  if (error instanceof errors.JOSEAlgNotAllowed) return 'its algorithm is not allowed';
  return 'it is not a signed JWT';
}
