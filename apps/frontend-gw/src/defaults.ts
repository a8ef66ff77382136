/** Times and sizes of a gateway: times in milliseconds, sizes in bytes. */
export const GATEWAY = {
  /** What a dial may take where `--backend-dial-timeout` sets no limit: nothing waits without a deadline. */
  dialMs: 30_000,
  /** How long a session may be silent with an attach of `isthmus hold` before another is tried. Hold waits for twice as long. */
  passedAttachMs: 1000,
  /** How long the answer to a caller's wrong token waits. */
  wrongTokenMs: 1000,
  /**
   * Such answers that may wait for one source address and the tenant that it names. Tokens of issuers count while they are verified, and more
   * of them wait for a turn. An unknown address has 64 handshakes a second with three tokens each, which does not fill these. Verifying as many
   * takes 50 ms.
   */
  wrongTokensOfSource: 256,
  /** The same for one source address and all tenants, and for one tenant and all addresses. For the latter, wrong tokens are refused at once. */
  wrongTokens: 1024,
  /** Tokens of issuers that were good, of all tenants, 100 bytes each: they need no turn. The one that was shown longest ago is forgotten. */
  goodTokens: 4096,
  /** How long callers may take to close when the gateway ends: upstream drops them within 0.4 s. */
  callerGraceMs: 300,
};
