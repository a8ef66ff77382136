/**
 * Times, sizes and counts of tunnel, the core of gateways, hubs and agents: times in milliseconds, sizes in bytes.
 */
export const TUNNEL = {
  /** The longest id, tenant, zone or address that a peer may use: enough for a DNS name, brackets and a port. A longer one is refused. */
  nameChars: 264,
  /** The most characters of an error's text that are put into an operator's words. A peer may have written it. The rest is cut off. */
  errorTextChars: 2000,
  /** How many errors of a chain of causes are searched for a refusal: an error, what wrapped it, and what that came over. */
  causes: 4,
  /** How long after `isthmus check` announced a probe the refusals of its address are no news. */
  probeMs: 30_000,
  /** Announced probes that are remembered. One `isthmus check` probes two ports of a hub. The oldest is forgotten for one more. */
  probes: 100,

  /**
   * Dials of one tenant that may wait for their answers in one process without limits of tenants. Each dial has a deadline, so a tenant with
   * more has lost its destinations or agents: its callers are refused, because to wait is worse. Upstream was seen with 27,700.
   */
  pendingDials: 2000,
  /** Tenants whose use is remembered before those that use nothing are forgotten. */
  idleTenants: 1000,
  /**
   * Dials that start in one tick of the event loop. Each takes some 0.1 ms of it, so a tick stays short, and those of other tenants that
   * came meanwhile start in the next one.
   */
  startsATick: 16,
  /**
   * Dials of a tenant that are under way and young. More would fill the queues of every process on the way, and their answers would come in
   * one tick. With answers after 3 ms this allows 10,000 dials a second. The others wait.
   */
  youngDials: 32,
  /** Dials that have been under way for so long count as young no more: they wait for something else than a processor. */
  youngMs: 100,
  /** What is due within this time is reminded of together, so that what came together needs one pass. */
  remindTogetherMs: 10,
  /** What is due later than this is looked at only when some of it is due: thousands of half-closed tunnels may be. */
  soonMs: 1000,
  /** How much longer the first word of an agent may take on a path, as a multiple of the round trips of its links. Round trips vary. */
  roundTrips: 2,

  /** How often tunnels that a tenant's limits have paused are resumed. Users of a terminal do not notice it, and it needs few timers. */
  resumePausedMs: 20,
  /** The largest burst of bytes above a tenant's rate, as the time in which the rate allows as many. */
  burstMs: 100,
  /** One read of a socket. A tunnel that is resumed reads at least as much. */
  readBytes: 64 * 1024,
  /** How often the readers of tunnels are checked while bytes wait for them. */
  readerCheckMs: 1000,
  /**
   * While its tenant's queue is full, a tunnel ends after so many checks in a row at which its reader had taken nothing. That is the same
   * time as for readers that hold up a packet stream.
   */
  stalledChecks: 10,

  /** How long a side of a tunnel may take to close once the other side has closed and nothing is left to write. Then it is closed. */
  lingerMs: 500,
  /**
   * How long a half-closed tunnel may stay silent, and how long a side may take nothing of what is left for it. Then it is cut: nothing else
   * detects a peer that vanished after its FIN. `--half-closed-timeout` sets the first for a gateway.
   */
  halfClosedMs: 300_000,
  /**
   * How long after its caller a destination may speak and still have answered it. What speaks later sends a stream, such as a log that is
   * followed, which may be silent for any time and is not idle. A slow answer looks the same, which does no harm.
   */
  answerMs: 2000,
  /** How long a destination may take to end an idle tunnel of a process that drains, before its caller hears of the end all the same. */
  goodbyeMs: 5000,
  /** How often a process that drains looks for idle tunnels, unless they may be idle for less. */
  idleCheckMs: 1000,

  /**
   * The most that an end of a tunnel may keep until the other end has it: what is under way at 160 MB/s with a round-trip time of 100 ms, and
   * as much again for acknowledgements that come late. Its writer then waits.
   */
  keptMostBytes: 32 * 1024 * 1024,
  /**
   * Taken bytes of a tunnel are acknowledged within this time. They are acknowledged sooner if they are many, with a WINDOW_UPDATE, because
   * the mark then needs no write of its own, and when the other end asks because it has to wait.
   */
  acknowledgeMs: 250,
  /**
   * An end of a tunnel acknowledges at once when it has taken so much. The other end keeps the bytes until then. Buffers that are kept through
   * two young collections grow old, and only a collection of the whole heap frees those. With WINDOW_UPDATEs alone, one fast tunnel kept 4 to 8 MiB.
   */
  acknowledgeBytes: 128 * 1024,
  /**
   * A process that dies closes all its connections at the same moment. All its peers have noticed, and the others know it, within this time.
   * Only busy ones need so long.
   */
  togetherMs: 500,
  /** What the death of a process closes, its peers notice within this time, unless they are busy: its tunnels then end at once. */
  sameMomentMs: 100,
  /**
   * How long a process whose connections ended within `togetherMs`, and not in the same moment, may take to come back before it counts as dead. One
   * that lives connects again at once: that takes a handshake, and the registry's word of it.
   */
  backAtOnceMs: 1500,
  /**
   * How long an end of a tunnel waits for a new way, if the process at the other end seems to have closed its connection. One that is alive is
   * back after a second or two, and on a busy machine before its links would be ended as silent. `--resume-timeout` bounds it.
   */
  hungUpBackMs: 5000,
  /** After this time and the round trips of its path, an attach without an answer is given up, and another session is tried. */
  attachMs: 2000,
  /** An attach never waits longer than this, whatever the hub says of the round trips behind it. */
  attachLongestMs: 10_000,
  /**
   * How long a tunnel waits after its first failed attach. This is short, because after the death of an agent's process one hub may notice
   * it later than another, and attaches through that hub fail.
   */
  attachRetryMs: 10,
  /** The longest wait after a failed attach. */
  attachRetryMostMs: 1000,
  /** A way that carried a tunnel for so long was lost by accident, so the next attach is made at once. */
  carriedMs: 1000,
  /** How soon after a failed move a tunnel checks its session again. */
  moveAgainMs: 500,
  /** Attaches of a tunnel that an agent accepts a second. A gateway tries again after 5 ms to 1 s. More are refused. */
  attachesPerSecond: 5,
  /** Attaches of a tunnel that an agent accepts at once after a quiet time. */
  attachesAtOnce: 10,
  /**
   * Attaches that start in one tick of the event loop of a gateway or hub. After the loss of a hub, thousands of tunnels attach at once. New dials
   * start before them, 16 in each tick.
   */
  attachStartsATick: 4,
  /** Attaches of one tenant that are under way and young. The others wait. */
  youngAttaches: 256,
};
