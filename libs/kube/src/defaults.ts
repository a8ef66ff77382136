/** Times, sizes and counts of the client of the Kubernetes API: times in milliseconds unless named otherwise, sizes in bytes. */
export const KUBE = {
  /** How long one call of the API may take, with all its retries. Then it fails. */
  callMs: 10_000,
  /** Calls of the API per second, as in client-go. More wait for their turn. `--kubeconfig-qps` sets it. */
  qps: 5,
  /** Calls of the API that may go out at once before the rate holds, as in client-go. `--kubeconfig-burst` sets it. */
  burst: 10,
  /** How often a call is repeated whose connection failed, or where the server says when to try again. */
  retries: 3,
  /** The pause before the first repetition of a call. It doubles, with jitter. */
  retryFirstMs: 100,
  /** The longest pause between repetitions of a call, unless the server asks for more. */
  retryCapMs: 2000,
  /** How long a kubeconfig, or a pod's token, counts as current after it was read, as in client-go. */
  rereadMs: 60_000,
  /** Words, signs, blanks and line ends of a YAML document that others wrote. Each takes some 7 microseconds. */
  yamlPieces: 200_000,
  /** Aliases in it. People write few, and each is looked for among all anchors. */
  yamlAliases: 100,
  /** How deep it may be, in the library's nodes: a field has two of them. */
  yamlDepth: 100,
  /** The longest answer or event that is read. A list of 10,000 leases is about 6 MB; a longer one is not meant for this client. */
  bodyBytes: 32 * 1024 * 1024,
  /** Connections to an API server, both in use and kept open. */
  sockets: 16,
  /** Connections to an API server that are kept open without a call. */
  idleSockets: 2,
  /** How long a server's lease lasts without a renewal, in seconds. Then others delete it. */
  leaseSeconds: 30,
  /** The interval between renewals of a server's lease, and between searches for expired ones, as in upstream. */
  leaseRenewMs: 15_000,
  /** By how much of itself the interval between renewals varies, which spreads servers that started together. */
  leaseRenewJitter: 0.04,
  /** The pause after the first renewal that failed. It doubles, with jitter. */
  leaseRetryFirstMs: 200,
  /** The longest pause between renewals that fail. */
  leaseRetryCapMs: 7000,
  /** How often a renewal is repeated at once because somebody else wrote the lease meanwhile. Then it counts as failed. */
  leaseConflicts: 5,
  /** How long an agent's watch of the servers' leases lasts before it lists them again. */
  watchMs: 300_000,
  /** Without an event for this long, a watch is opened again: live leases are renewed every 15 s. */
  watchIdleMs: 60_000,
  /** The pause after a watch that ended or failed. It doubles with failures, with jitter. */
  watchRetryFirstMs: 500,
  /** The longest pause between watches that fail. */
  watchRetryCapMs: 30_000,
  /** Objects in a page of a list. Where they are so large that it would have more than `pageBytes`, fewer are asked for. */
  pageObjects: 250,
  /** The longest page of several objects, in bytes. While it is read, it takes some four times as much memory. 250 secrets of certificates have 2 MB. */
  pageBytes: 4 * 1024 * 1024,
  /** The longest pause between lists and watches of objects that fail. A few programs of a plane do so, not each agent. */
  objectsRetryCapMs: 5000,
  /** How often objects that are watched are listed again, so that a deletion that no watch has told of is noticed. */
  relistMs: 3_600_000,
  /** Without an event for this long, a watch of objects is opened again: the API server sends bookmarks every minute. */
  objectsIdleMs: 150_000,
  /** How long a lease that only one program holds lasts without a renewal, in seconds. Then another takes it. */
  leaderSeconds: 15,
  /** The interval between renewals of that lease, and between looks at it by the others. */
  leaderRenewMs: 5000,
  /** How often an agent writes the deletion cost of its pod at most. A change of its tunnels in between is written then. */
  deletionCostMs: 60_000,
  /** How long an agent that ends may take to write an event about it: less than a program takes to close. */
  eventMs: 2000,
  /** Reviews of agents' tokens in progress at once. No more use the client's rate, so at worst ten delay the renewal of a lease. */
  reviewsAtOnce: 10,
  /** How long an agent's token may wait for its review. Its agent waits no longer; the token is then refused. */
  reviewMs: 10_000,
  /** Tokens that may wait for their review. Each belongs to a connection, and fewer connections may wait. More are refused. */
  tokensWaiting: 10_000,
  /** Answers to remember, of each kind; the oldest is dropped. 1,000 take some 300 KB. */
  answersRemembered: 10_000,
  /** The longest time to remember a refusal. A token that becomes valid, because its account was created late, waits this long. */
  refusalMs: 10_000,
  /** How many characters of a refusal are remembered. The API server may send any text. */
  refusalCharacters: 300,
};
