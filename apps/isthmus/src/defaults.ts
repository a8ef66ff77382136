/** Times, sizes and counts of the command line: times in milliseconds, sizes in bytes. */
export const ISTHMUS = {
  /** How long each member may take to answer. Then it is listed as one that did not. `--timeout` sets it. Members have the same default. */
  answerMs: 2000,
  /** The longest `--timeout`: by then a person has given up, and so should a script. */
  longestAnswerMs: 120_000,
  /** How long members wait for each other at most. A dial and its first byte may take 122 s. */
  longestCallMs: 125_000,
  /** How long a dial of `isthmus dial` may take. `--within` sets it. */
  dialMs: 30_000,
  /** How long an answer about a dial may take on top of the dial itself: the way to the gateway and back. */
  dialAnswerMs: 2000,
  /** From the start of one dial of a series to the start of the next. `--interval` sets it. */
  seriesIntervalMs: 1000,
  /** The most dials of a series (`--count`): all are one JSON document. */
  seriesDials: 10_000,
  /** How long each dial of `isthmus check` may take. `--within` sets it. */
  checkDialMs: 10_000,
  /** The pause before `isthmus check --wait` checks again. */
  checkAgainMs: 2000,
  /** Dials of `isthmus check` at once: a thousand agents take a minute or two, without noticeable load. */
  checkDialsAtOnce: 10,
  /** Agents whose clocks `isthmus check` compares, chosen by chance. What sets clocks goes wrong on many machines, or is seen by what it breaks. */
  checkClocks: 100,
  /** A Redis that answers more slowly gets a warning. It delays what gateways learn, but not dials. */
  redisSlowMs: 100,
  /** How long a server may take to accept a connection to its unix socket. */
  socketAcceptMs: 5000,
  /** How long a hub may take to say what it makes of a probe of its port: it is told then that nobody was refused. */
  probeEndMs: 2000,
  /** How often `isthmus drain --wait` asks what is left. */
  drainAskMs: 500,
  /** How many sessions and tunnels a dry run of a drain shows for people; `-o json` lists the rest. */
  drainShown: 20,
  /** How often a list with `--watch` is asked for again. */
  listAgainMs: 2000,
  /** What `isthmus events` lists. Members remember no more. */
  eventsMs: 3_600_000,
  /** Two reports of one thing, by two members or by a member and its log, are at most this far apart. */
  sameEventMs: 5000,
  /** How many tunnels `isthmus tunnels` lists. `--limit` sets it. */
  tunnelsListed: 1000,
  /** How many cuts `isthmus cuts` lists. `--limit` sets it. */
  cutsListed: 1000,
  /** How far `isthmus cuts` looks back: as far as gateways remember. `--since` sets it. */
  cutsMs: 3_600_000,
  /** How many warnings of a member that is not ready are read to find different ones. */
  warningsRead: 50,
  /** How many different warnings of a member that is not ready are shown. */
  warningsShown: 3,
  /** The longest answer of one member, in characters. A list of 100,000 tunnels has 40 million. */
  answerBytes: 64 * 1024 * 1024,
  /** How much longer than each of its members the one that is asked for all may take. */
  mergeMs: 1_000,
  /** The longest refusal of an admin port, in bytes. */
  refusalBytes: 64 * 1024,
  /** Connections to the admin port that is asked: it lets in 50 of one address. */
  connections: 8,
  /** How long certificates of `isthmus certs` are valid, in days; CAs ten times as long. `--days` sets it. */
  certsDays: 365,
  /** What a dial through `isthmus hold` may take where `--backend-dial-timeout` sets no limit. It waits so long for a gateway. */
  holdDialMs: 30_000,
  /** How long `isthmus hold` waits for a gateway's connection, and for each of its answers, before it tries again. */
  holdConnectMs: 5000,
  /** How soon at most `isthmus hold` tries a gateway again: tunnels and dials go on so much later than a gateway is back. */
  holdConnectAgainMostMs: 500,
  /** Cuts that `isthmus hold` keeps for the next gateway. The oldest are left out first; its metric and log have all. */
  holdCutsKept: 1000,
  /** When it tells a gateway of more cuts, if the link takes no more now. */
  holdCutsAgainMs: 1000,
  /** How often `isthmus hold` that was told to stop looks whether it has anything left to carry. */
  holdQuietMs: 50,
  /** How long before the end of its grace it says which tunnels it will cut. Half of a shorter grace. */
  holdLastMs: 5000,
  /** The part of that time at its end in which it takes no more dials, so that the last ones get their answers, and short ones end. */
  holdNoDialsPart: 1 / 5,
  /** How many of these tunnels it names. */
  holdLastNamed: 100,
  /** How long gRPC callers may take to close when `isthmus hold` ends, and its last words to gateways to leave. */
  holdEndMs: 300,
  /** The largest kubeconfig: one of a few thousand clusters, with their certificates. */
  kubeconfigBytes: 16 * 1024 * 1024,
  /** How long to wait for a kubeconfig that another program changes. */
  kubeconfigLockMs: 5000,
  /** How often to look whether its lock is gone. */
  kubeconfigLockAskMs: 50,
  /** How long a command of `isthmus login` may take to print a token. People may have to type something. */
  tokenCommandMs: 120_000,
  /** The longest token: with the rest of a head, gateways read 32 KiB. */
  tokenBytes: 16_384,
  /** How often `isthmus watch` asks who is in the plane. */
  watchMembersMs: 5000,
  /** The pause before a gateway's stream of dials that ended is opened again. */
  watchAgainMs: 1000,
  /** How many dials of a gateway are read again after its stream was lost. */
  watchMissedDials: 100,
  /** How many dials are remembered by id, so that those read again are told once. */
  watchToldDials: 10_000,
};
