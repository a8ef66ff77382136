/**
 * From an agent to a hub that has said that it accepts this message: a fresh token, which replaces the session's present one. The hub
 * verifies it as at the start of the link. It must be of the same principal.
 */
export interface CredentialMessage {
  readonly type: 'credential';
  /** Without `Bearer`. */
  readonly token: string;
}

/** From a hub to its agent: the credential that the agent sent last is now the session's. */
export interface RenewedMessage {
  readonly type: 'renewed';
}

/** The longest token, in characters: as many as the head of a link's request has room for. */
const MAX_TOKEN = 16 * 1024;

/** Returns a credential message with nothing but its own fields, or undefined if it is malformed. */
export function readCredential({ token }: Readonly<Record<string, unknown>>): CredentialMessage | undefined {
  if (typeof token !== 'string' || token === '' || token.length > MAX_TOKEN) return undefined;
  return { type: 'credential', token };
}
