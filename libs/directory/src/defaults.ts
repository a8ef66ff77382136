/**
 * Times, sizes and counts of the registry, its copy and the routing of dials: times in milliseconds, sizes in bytes.
 */
export const DIRECTORY = {
  /** How many attempts a dial makes. After so many failures another session is unlikely to help, so the dial fails. */
  attempts: 5,
  /**
   * How long an attempt may stay without an acknowledgement, besides the round trips of its path. Then another one starts in parallel,
   * and the session and its hub are suspects.
   */
  hedgeAfterMs: 300,
  /**
   * How long an attempt may stay without an answer after it was acknowledged. Then another one starts in parallel. Agents answer after
   * 5 s at most, whatever their destination does, so this one hangs: a hub acknowledges for a Go agent, whose protocol does not.
   */
  hungAfterMs: 7_000,
  /**
   * Retries, and as many hedges, that a tenant of a gateway has at once after a quiet time; with none left a dial fails with its last
   * error. When a hub dies, each dial that was pending on it is retried once, and this is as many as a tenant may have pending.
   */
  tenantRetries: 2_000,
  /** The same of all tenants of a gateway together: several may lose a hub at once, and none can take all. */
  allRetries: 10_000,
  /** What each dial adds to the retries of its tenant and of all: in the long run, at most one attempt more for every five dials. */
  retriesPerDial: 0.2,
  /** Tenants whose use of retries is remembered. One that is forgotten has all of them again, as after a quiet time. */
  retryTenants: 10_000,
  /** How long dials avoid a silent hub or session while there is another: until it answers, or this time has passed. */
  suspectMs: 1_000,
  /**
   * Tunnels of one gateway through a session, up to which its agent is never too busy. That is far less than an agent can carry, and far
   * more than agents differ by chance.
   */
  busyTunnels: 1_000,
  /** A busy agent at the own hub is passed over for one elsewhere that carries less than this part of its load: 1 in so many. */
  busyFactor: 2,
  /**
   * Agents of one tenant in quarantine at a time, and released ones that are remembered. Operators add them one by one, and each copy of
   * the registry holds them all. All tenants together have room for twice as many, and none gets more of it than it leaves to others.
   */
  quarantined: 1_000,
  /** Longest agent id of a quarantine, in characters. The records of a thousand agents stay below 2 MB. */
  quarantineAgentId: 1_000,
  /** Longest tenant name of a quarantine, in characters. */
  quarantineTenant: 253,
  /** Longest reason of a quarantine, in characters. */
  quarantineReason: 500,
  /** Time between two requests of a process for the list of members. The answer is small. */
  rosterMs: 5_000,
  /** Age from which this process's own record of membership was not renewed: the registry takes no writes, and its list is incomplete. */
  lateMs: 8_000,
  /** How often a hub renews its record in Redis. */
  beatMs: 3_000,
  /** How long a hub's record lives in Redis without being renewed. */
  ttlMs: 8_000,
  /** How long a hub's record must be missing before a watcher considers the hub gone. A living hub writes within that time. */
  graceMs: 5_000,
  /** How often a watcher checks for hubs that expired and for a Redis that was emptied. */
  lookMs: 1_000,
  /** How long the withdrawal of a session waits for the session to come back. */
  flapMs: 2_000,
  /** How long the announcement of a session waits for others to share its write, and a watcher after a read for more to share the next. */
  coalesceMs: 20,
  /** How often a member writes to Redis that it is present. After a failure it waits as long. */
  memberBeatMs: 5_000,
  /** How long a silent member stays listed. */
  memberTtlMs: 16_000,
  /** Deadline of one command to Redis, and of connecting to it. */
  commandMs: 1_200,
  /** Longest pause after a first failure of Redis. Each further failure doubles it, up to `backoffCapMs`. */
  firstPauseMs: 100,
  /** Longest pause between two attempts to connect to Redis. */
  backoffCapMs: 500,
  /** How long to wait for one Sentinel or Cluster node to name the server before the next one is asked too. */
  staggerMs: 200,
  /** How long a connection to Redis may take to close gracefully. */
  disconnectMs: 1_000,
  /** About how many changes Redis keeps for watchers that were cut off, 4 MB of its memory. One that missed more takes a snapshot. */
  keptChanges: 10_000,
  /** Changes that a watcher reads at once. */
  changesPerRead: 500,
  /** Sessions per reply of a snapshot, about 350 bytes each. Keeps every reply short, however many sessions there are. */
  sessionsPerReply: 1_000,
  /** Hubs whose sessions a snapshot reads at once. */
  hubsPerRead: 8,
  /** Sessions per write of a hub, which take a few milliseconds of Redis' time. */
  sessionsPerWrite: 200,
  /** How long the sessions of a hub that writes all of them live in Redis if it does not finish. */
  stagedMs: 60_000,
  /** Batches of those sessions in flight at once, so that a slow answer delays them together and not one after the other. */
  stagedTogether: 10,
  /** Records of quarantine per write. */
  quarantinesPerWrite: 200,
  /**
   * Longest record that is read, in characters; a longer one is skipped. An agent's request may say 64 KiB of itself, which JSON's escapes
   * can double. Parsing takes up to 0.35 µs a character (arrays in arrays), while nothing else runs.
   */
  recordCharacters: 128 * 1024,
  /** Shortest time between two reports of a loop's health. */
  reportMs: 1_000,
  /** Shortest time before the same state of a loop is reported again, with another detail or as a repeated note. */
  repeatMs: 30_000,
};
