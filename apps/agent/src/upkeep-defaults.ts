/**
 * How an agent keeps its sessions. Times are in milliseconds. Flags set the rest: `--sync-interval` and its cap bound the pauses of an
 * address, and all agents move to better hubs within `--rebalance-time`.
 */
export const UPKEEP = {
  /** How often to look for what no event reports, such as the end of the last tunnel of a session that should move. */
  lookEvery: 1000,
  /** Agents that lost the same server, or hear of the same new one, connect at random times within this. */
  herdSpread: 2000,
  /** Attempts at a time. Without a session they begin after 0, 1, 3 and 7 s, before the first is given up after 10 s. */
  maxAttempts: 4,
  /**
   * An attempt that takes longer does not delay the next one. Doubles with each further pending attempt: a server that is slow because
   * thousands connect at once would become slower still, and never recover.
   */
  youngAttempt: 1000,
  /**
   * The same for an agent that still has a session. Measured with 2,000 agents that lost a session at the same moment: with a second
   * attempt after a second, all hubs together did only handshakes that their agents had abandoned by the time they were done.
   */
  patientAttempt: 15_000,
  /**
   * How long an attempt may take, without a session and with one. After each attempt that took too long, the first doubles up to the
   * second: otherwise, hubs whose handshakes take longer than agents wait would never finish one.
   */
  urgentTimeout: 10_000,
  calmTimeout: 40_000,
  /** How much earlier than its clock a timer may fire. */
  timerEarly: 50,
  /** How long a name may take to resolve. The resolver itself may take minutes when its servers are silent. */
  lookupTimeout: 5000,
  /** After this many failures in a row, the next address has to wait too, for this long: a list may be long. */
  freeFailures: 8,
  failureGap: 250,
  /** The longest pause after the first failure of an agent without a session: a load balancer may lead elsewhere. */
  firstPause: 100,
  /**
   * The same if nobody listened, and how often: it doubles each time, 1.5 s in all. Trying again costs nothing, and finds a server that
   * starts together with its agent at once.
   */
  refusedPause: 50,
  refusedTries: 5,
  /** The longest pause after that while nobody listens: a static pod of one server is away for 10 s, and callers wait for its agents. */
  refusedCap: 2000,
  /** A session that lasted this long shows that its server is well. */
  stable: 10_000,
  /** The agent waits before it reconnects to a server that ends sessions sooner than this. */
  brief: 1000,
  /** So often in a row an address may lead to another server than the one that is sought before there is a longer pause. */
  maxTries: 16,
  /** That pause: for any further server, and for a better hub, in times of `--rebalance-time`, which counts as `lookEvery` at least. */
  missedPause: 60_000,
  movePauses: 10,
  /** Pauses between attempts to reach a better hub. */
  moveFirst: 250,
  moveCap: 2000,
  /** How much longer a session with tunnels stays than an idle one, as a part of `--rebalance-time`. */
  busyPart: 2 / 3,
  /** How many hubs of one link and how many addresses are remembered. */
  maxKnown: 1024,
} as const;
