import { errors, jwtVerify } from 'jose';
import { claimsFault, readToken, type SaidByToken, TokenRejected, type TokenRules } from './claims.ts';
import type { TokenKey } from './keys.ts';

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

/** How far the issuer's clock may differ, in seconds. */
const CLOCK_TOLERANCE = 10;

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

/** Verifies a token without asking anyone. Rejects with OtherKey, or with TokenRejected if no other key would do either. */
export async function verifyToken(
  token: string,
  rules: TokenRules,
  { jwk }: TokenKey,
  now: () => number = Date.now,
): Promise<VerifiedToken> {
  const said = readToken(token);
  const fault = claimsFault(said, rules);
  if (fault !== undefined) throw new TokenRejected(fault);
  const { issuer, audience, subject } = rules;
  try {
    const { payload } = await jwtVerify(token, jwk, {
      ...{ issuer, audience, ...(subject !== undefined && { subject }) },
      algorithms: ALGORITHMS,
      clockTolerance: CLOCK_TOLERANCE,
      requiredClaims: ['exp', 'sub'],
      currentDate: new Date(now()),
    });
    const { sub = '', exp = 0 } = payload;
    return { subject: sub, expires: exp * 1000 };
  } catch (cause) {
    if (isAboutKey(cause)) throw new OtherKey('its signature does not match', { cause });
    throw new TokenRejected(reasonOf(cause, said), { cause });
  }
}

function isAboutKey(error: unknown): boolean {
  return error instanceof errors.JWSSignatureVerificationFailed || !(error instanceof errors.JOSEError);
}

function reasonOf(error: unknown, { expires = 0 }: SaidByToken): string {
  if (error instanceof errors.JWTExpired) return `it expired at ${new Date(expires).toISOString()}`;
  if (error instanceof errors.JWTClaimValidationFailed) {
    if (error.claim === 'nbf') return 'it is not valid yet: is the clock right?';
    return error.reason === 'missing' ? `it has no ${error.claim}` : `its ${error.claim} is not as expected`;
  }
  if (error instanceof errors.JOSEAlgNotAllowed) return 'its algorithm is not allowed';
  return 'it is not a signed JWT';
}
