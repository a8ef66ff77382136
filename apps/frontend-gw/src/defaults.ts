/** Times and sizes of a gateway: times in milliseconds, sizes in bytes. docs/CONSTANTS.md lists them. */
export const GATEWAY = {
  /** What a dial may take where `--backend-dial-timeout` sets no limit: nothing waits without a deadline. */
  dialMs: 30_000,
  /** Initial window of a caller's tunnel: what it holds if its destination does not read. It grows if the destination reads. */
  callerWindowBytes: 64 * 1024,
  /** How long the header fields of a caller's gRPC request may be: as long as the head of a CONNECT. */
  callerFieldsBytes: 16 * 1024,
  /** Window of a gRPC stream until its caller has proven a tenant, where tenants are configured. It has room for a dial. */
  unprovenWindowBytes: 4 * 1024,
  /** Streams of a gRPC connection until its caller has proven a tenant, where tenants are configured. */
  unprovenStreams: 1,
  /**
   * Silent gRPC callers are pinged after at most this time, even if `--frontend-keepalive-time` allows longer. Node does not always notice that a
   * TLS connection was reset while it wrote to it, and the caller's tunnel would stay open for the flag's hour.
   */
  longestKeepaliveMs: 60_000,
  /** How long the answer to a caller's wrong token waits. */
  wrongTokenMs: 1000,
  /** Such answers that wait for one source address. Beyond them, further wrong tokens are refused at once, and those of issuers unread. */
  wrongTokensOfSource: 16,
  /** The same for the tenant that the tokens are said to be of. */
  wrongTokensOfTenant: 256,
  /** How long the last accepted callers may take in a drain for their handshake, dial and answer. */
  answerGraceMs: 1000,
  /** How long callers may take to close when the gateway ends: upstream drops them within 0.4 s. */
  callerGraceMs: 300,
};
