/** Times and sizes of a gateway: times in milliseconds, sizes in bytes. */
export const GATEWAY = {
  /** What a dial may take where `--backend-dial-timeout` sets no limit: nothing waits without a deadline. */
  dialMs: 30_000,
  /** How long a session may be silent with an attach of `isthmus hold` before another is tried. Hold waits for twice as long. */
  passedAttachMs: 1000,
  /** How long the answer to a caller's wrong token waits. */
  wrongTokenMs: 1000,
  /**
   * Such answers that wait for one source address and one tenant, which the tokens are said to be of. Beyond them, further wrong tokens are refused
   * at once, and those of issuers unread. Tokens of issuers that are verified take their places meanwhile.
   */
  wrongTokensOfSource: 16,
  /** The same for one source address and all tenants, and for one tenant and all addresses. Only wrong tokens are refused for the latter. */
  wrongTokens: 256,
  /** How long callers may take to close when the gateway ends: upstream drops them within 0.4 s. */
  callerGraceMs: 300,
};
