/**
 * From an agent to a hub that has said that it takes one: a fresh token in place of the one that the session stands on. The hub verifies
 * it as at the start of the link, and it must be of the same principal.
 */
export interface CredentialMessage {
  readonly type: 'credential';
  /** Without `Bearer`. */
  readonly token: string;
}

/** From a hub to its agent: the session now stands on the credential that the agent sent last. */
export interface RenewedMessage {
  readonly type: 'renewed';
}

/** Characters of a token: as many as the head of a link's request has room for. */
const MAX_TOKEN = 16 * 1024;

/** Returns a credential message with nothing but its own fields, or undefined if it is none. */
export function readCredential({ token }: Readonly<Record<string, unknown>>): CredentialMessage | undefined {
  if (typeof token !== 'string' || token === '' || token.length > MAX_TOKEN) return undefined;
  return { type: 'credential', token };
}
