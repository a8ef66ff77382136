/** Times, sizes and counts of the admin port: times in milliseconds, sizes in bytes. */
export const ADMIN = {
  /** Connections that are let in, at once. The port is for operators and a few scrapers. */
  connections: 100,
  /** Of them, from one source. */
  connectionsOfSource: 50,
  /**
   * Connections in their handshake. An operator's takes a moment, so only an attack reaches this. They are counted apart from those that
   * are let in, so that somebody without a certificate takes no operator's place.
   */
  handshakes: 200,
  /** Of them, from one source. */
  handshakesOfSource: 50,
  /** What one tenant's operators may ask in a second, in bytes: 100 calls, with `askBytes` for each. */
  tenantBytesPerSecond: 16 * 1024,
  /** What a tenant may send at once after a silence, in time at that rate: 64 KiB. */
  tenantBurstMs: 4_000,
  /** Tenants whose turns are counted, the last that sent something. */
  pacedTenants: 1_000,
  /** A client of the RPC without a call for this long may be gone, and is disconnected. */
  idleConnectionMs: 300_000,
  /** How often clients of the RPC are pinged: a dead machine closes no connection, even if it watches something. */
  pingEveryMs: 60_000,
  /** How long a client may take to answer a ping. Then it is gone, and disconnected. */
  pingTimeoutMs: 20_000,
  /** How long the head of a request may take. Then the connection is closed. */
  headMs: 10_000,
  /** How long a connection without a request stays open. Scrapers keep connections open between scrapes. */
  idleMs: 65_000,
  /** Longest path of a request that is written to the audit record, in characters. */
  path: 200,
  /** Targets in an answer for Prometheus' discovery, of 200 bytes each. */
  targets: 100_000,
  /** Longest part of a certificate's id that a refusal shows, in characters. */
  shownId: 200,
  /**
   * How often open connections are checked for a certificate or tenant that has ended. A timer for the next expiry would be wrong when the
   * clock is set.
   */
  visitsMs: 1_000,
  /** How long each member may take to answer a question that another member passes on, unless the operator says. */
  askMs: 2_000,
  /** What a question takes of what a tenant's operators may send, for each member that it is for, in bytes: at least what it sends itself. */
  askBytes: 160,
  /** Questions that the operators of one tenant, or those of the plane, may have open at a member: each asks all others. */
  asksOfTenant: 32,
  /** Members that a question names. */
  membersAsked: 1_000,
  /** Largest body of a request of the console's page. */
  bodyBytes: 64 * 1024,
  /** How long such a body may take to arrive. */
  bodyMs: 10_000,
  /** How long a call of the console may take: a dial and its first byte, and a little more. */
  callMs: 125_000,
  /** How often a stream of the console carries a sign of life. A connection without a byte for 65 s is closed. */
  heartbeatMs: 15_000,
  /** How long the registry may take to name the members to the console. Then those of its last answer are taken. It is asked as often at most. */
  membersMs: 1_000,
  /** Seconds that a profile takes if the request does not say. */
  profileSeconds: 30,
  /** Seconds that a profile takes at most. */
  longestProfileSeconds: 300,
  /** Longest timeout of a dial that an operator may ask for. */
  dialMs: 60_000,
  /** Longest duration of a temporary log level. */
  logMs: 24 * 3_600_000,
  /** Sessions or tunnels listed in the answer to a drain's dry run. That is enough for an operator, and far below the message limit. */
  drainListed: 1_000,
  /** Longest reason of a kick or quarantine, in characters. It goes into log lines and audit records. */
  reason: 500,
  /** Sessions that the log line of a kick names. */
  kickLogged: 10,
  /** Sessions that `isthmus explain` gets, over all strategies. */
  candidates: 1_000,
  /** The same of sessions that no strategy finds. */
  otherCandidates: 100,
  /** Names in one sentence of advice. */
  namesInAdvice: 5,
  /** Tenants that a refusal names: enough to recall a name, and one line still. */
  namesInRefusal: 20,
  /** Events queued for one watcher of dials, some seconds of a busy gateway. Those that a slow watcher cannot take are dropped and counted. */
  watchQueue: 1_000,
  /** Watchers of a process's dials. Each inspects every dial twice. One tenant may have as many as it leaves to others. */
  watchers: 32,
  /** Ended dials that a process keeps: the last second of a busy one. */
  dials: 1_000,
  /** Failed and slow dials that are kept beside them, so that they are still there when an operator looks. */
  remarkableDials: 300,
  /** A dial that took at least this long is slow. */
  slowDialMs: 1_000,
  /** Dials that `isthmus status` names as the slowest. */
  slowestDials: 10,
  /** How long ago the slowest dials may be. */
  slowestWithinMs: 60_000,
  /** How long ago the failures of a destination may be that are reported as failing. */
  failingWithinMs: 300_000,
  /** From how many failures on a destination is reported as failing. Fewer may be chance: a pod that was just deleted. */
  failures: 3,
  /** Failing destinations that are reported. */
  failingReported: 10,
  /** Agents that are named of each failing destination. */
  failingAgents: 5,
  /** How long losses, events, cuts and refusals are shown. The history of dials goes back as far. */
  historyMs: 3_600_000,
  /** Longest reason of one of them that is kept, in characters. */
  keptReason: 300,
  /** Losses of agents and hubs that a process tells, the last ones. */
  losses: 100,
  /**
   * A member that leaves takes itself off the plane's list. One that is off the list after it has written nothing for so long has died or
   * hangs, and is a loss. Members write every 5 s, and are asked for as often.
   */
  silentMemberMs: 8_000,
  /** What a process saw and remembers, some 300 to 500 bytes each: agents, hubs and the registry that came and went, and tunnels that were cut. */
  seen: 2_000,
  /** How many of them may be of one agent or hub. */
  eventsOfOne: 50,
  /** Beside them, what strangers caused or others told: refusals, and cuts of `isthmus hold`. All that is shown fits into a gRPC message. */
  told: 400,
  /** Refusals that are shown of each port. */
  refusalsOfPort: 50,
  /** How long a refusal is shown as recent. */
  refusalMs: 300_000,
  /** After how long without a dial a caller is forgotten. API servers that are in use dial every minute. */
  callerMs: 300_000,
  /** Callers that are remembered of one tenant: its API servers, and a few others. */
  callersOfTenant: 100,
  /** Tenants with remembered callers, the last that dialled: some hundred bytes for each caller. */
  callersTenants: 10_000,
  /** Width of a slot in the last hour of a process. */
  slotMs: 10_000,
  /** Width of a slot in the last hour of a tenant. */
  tenantSlotMs: 60_000,
  /** Tenants with an hour of their own, the last that dialled: 13 KB each. */
  historyTenants: 100,
};
