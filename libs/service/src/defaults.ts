/** Times and counts of a program's life and its health port: times in milliseconds. */
export const SERVICE = {
  /**
   * The size of the blocks that Node puts small buffers into. A small piece that waits in a tunnel keeps its whole block, which would be 64 KiB by
   * Node 26's own size.
   */
  poolBytes: 8 * 1024,
  /**
   * A process that may use no more memory than this does without V8's quick compiler, and collects more often: an agent in 48 MiB was killed by
   * 200 downloads by gRPC otherwise. A dial then takes 1.4 times as long.
   */
  littleMemoryBytes: 64 * 1024 * 1024,
  /** The least limit of memory, in bytes, at which the next two are set. A process with less is left to V8, which then saves memory. */
  ampleMemoryBytes: 256 * 1024 * 1024,
  /**
   * By how much of its heap, in percent, V8 lets it grow before it collects all of it: as much as V8 itself chooses at most. V8 counts the
   * buffers in, and chooses so little for a heap of 10 MB that it collected all of it for every 3 MB that a tunnel read.
   */
  heapGrowingPercent: 300,
  /**
   * How often V8 runs a function before its quick compiler takes it: V8's own count is 400. The first 2,000 dials take a
   * tenth less processor time so, as with 20, which takes some from the first ten dials and costs a process 20 MB.
   */
  quickCompileCalls: 150,
  /** The first version of V8 that has this compiler without a flag: Node 24's is 13.6. */
  quickCompilerV8: 13,
  /** How long closing may take after the drain. Then the process exits anyway. */
  closeMs: 5000,
  /** How long the other ends of tunnels that a second signal cut have to hear of it, before the process exits. */
  cutMs: 100,
  /** How long a request to the health port may take to arrive: upstream's ReadHeaderTimeout. */
  requestMs: 60_000,
  /** How long an idle connection to the health port is kept. Kubelets and scrapers keep theirs, and upstream's servers hold them for at least 60 s. */
  idleMs: 120_000,
  /** The longest head of a request to the health port, in bytes: a probe's has 200, a scraper's a token. */
  headBytes: 8 * 1024,
  /** Connections to the health port at once. A further one takes the place of one that asks for nothing. */
  connections: 1024,
  /** Connections to the health port at once from one source, which may be a proxy of many kubelets and scrapers. */
  connectionsOfSource: 256,
  /** How long a page of metrics may take. A later one is answered with 503. */
  metricsMs: 10_000,
  /** Tenants that the list of checks names one by one, those with the most sessions first. The rest are counted. */
  tenantsListed: 20,
};
