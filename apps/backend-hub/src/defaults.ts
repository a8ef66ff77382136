/** Times, sizes and counts of a hub: times in milliseconds, sizes in bytes. */
export const HUB = {
  /**
   * How long an agent may take for its TLS handshake. Longer than agents wait: when thousands connect at once, a hub must not disconnect those
   * that still wait, because they would start over.
   */
  handshakeMs: 60_000,
  /** How long a connection may take until its agent is admitted: the handshake, then 10 s each for the first bytes, the request and the token review. */
  admissionMs: 60_000 + 30_000,
  /** The most connections to a tenant's own port that wait to be admitted. They also count for `--max-waiting-agents`. */
  ownPortWaiting: 500,
  /**
   * With tenants, how many attempts of one connection may be refused or under way. It ends at the next one. Agents connect anew for each attempt. A
   * verification costs milliseconds, and a request on an open connection next to nothing.
   */
  attempts: 4,
  /** How soon after one fresh token of a session the next is verified. Tokens that come sooner are refused. */
  renewAfterMs: 1000,
  /** The same after one that was refused: each costs verifications. Our agents wait 22 s or more. */
  renewAfterRefusalMs: 20_000,
  /** Tenants whose rate of renewed sessions is remembered: as many as there can be files. */
  renewingTenants: 10_000,
  /** Window of a Go agent's only stream. */
  goAgentWindowBytes: 16 * 1024 * 1024,
  /** Streams of one connection of a Go agent. */
  goAgentStreams: 4,
  /** Window of a gRPC connection until its agent is admitted: nothing reads it before. */
  waitingWindowBytes: 64 * 1024,
  /** Streams of a gRPC connection until its agent is admitted. */
  waitingStreams: 1,
  /** How long Go agents may take to disconnect when the hub ends. Upstream's server drops them within 0.4 s. */
  goAgentGraceMs: 300,
  /** Links to agents that get a change of the plane's hubs in one tick of the event loop. This takes a few milliseconds, in which no tunnel's bytes move. */
  linksAtOnce: 500,
  /**
   * The shortest interval between reports of the plane's hubs to agents. Changes in between are sent together. A link accepts 100 messages a second.
   * If all hubs of a plane restart, a link gets ten messages a second, and the news of each hub.
   */
  tellEveryMs: 100,
  /** How many gateways that are gone one report names. That is 50 a second; a link accepts 100 messages. */
  lossesAtOnce: 5,
  /** If more gateways go than reports can name, agents still hear of so many: the latest. */
  losses: 1000,
  /**
   * How long agents may take in a drain to get a session with another hub before this one accepts no more dials for them. They connect as soon as
   * they hear of it. Thousands of them take a few seconds.
   */
  moveMs: 5000,
  /**
   * How often a drain checks the directory for agents' other sessions. A session is given up when the agent's other session was seen twice, so that
   * gateways, whose copies may be slightly older, know it too.
   */
  moveLookMs: 150,
};
