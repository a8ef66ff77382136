import { decodeJwt, decodeProtectedHeader } from 'jose';

/** The longest token, in characters: Kubernetes' service account tokens have about 1,000. */
const LONGEST_TOKEN = 16 * 1024;

/** The most audiences of a token, each of which is compared with each tenant's. Kubernetes' tokens have one to three. */
const MOST_AUDIENCES = 32;

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
  if (token.length > LONGEST_TOKEN)
    throw new TokenRejected(`a token of ${token.length} characters: at most ${LONGEST_TOKEN} are allowed`);
  const said = decoded(token);
  if (said.audiences.length > MOST_AUDIENCES)
    throw new TokenRejected(`it has ${said.audiences.length} audiences: at most ${MOST_AUDIENCES} are allowed`);
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
    throw new TokenRejected('it is not a signed JWT', { cause });
  }
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

/** Whether a token with these claims meets the rules. Cheap: a thousand tenants may have its issuer. */
export function meets({ issuer, audiences, subject }: SaidByToken, rules: TokenRules): boolean {
  if (rules.subject !== undefined && rules.subject !== subject) return false;
  return rules.issuer === issuer && audiences.includes(rules.audience);
}

/** Why a token with these claims does not meet the rules; undefined if it does. */
export function claimsFault(said: SaidByToken, { issuer, audience, subject }: TokenRules): string | undefined {
  if (said.issuer !== issuer) return expected('iss', said.issuer, issuer);
  if (!said.audiences.includes(audience)) return expected('aud', said.audiences.join(' '), audience);
  if (subject !== undefined && said.subject !== subject) return expected('sub', said.subject, subject);
  return undefined;
}

function expected(claim: string, value: string, wanted: string): string {
  return `its ${claim} is ${quoted(value)}, expected ${quoted(wanted)}`;
}

/** The longest quote of a token's text, in characters. */
const LONGEST_QUOTE = 200;

export function quoted(text: string): string {
  return JSON.stringify(text.slice(0, LONGEST_QUOTE));
}
