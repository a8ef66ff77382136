/** Times, sizes and counts of telemetry: times in milliseconds, sizes in bytes. */
export const TELEMETRY = {
  /** How long the SDK waits for one batch of spans. `OTEL_BSP_EXPORT_TIMEOUT` sets it. */
  batchExportMs: 30_000,
  /** Spans that wait for a collector. Further ones are lost. `OTEL_BSP_MAX_QUEUE_SIZE` sets it. */
  queuedItems: 2048,
  /** Spans in one batch. `OTEL_BSP_MAX_EXPORT_BATCH_SIZE` sets it. */
  batchItems: 512,
  /** Time between two batches of spans. `OTEL_BSP_SCHEDULE_DELAY` sets it. */
  spansMs: 5000,
  /** Time between two exports of metrics. `OTEL_METRIC_EXPORT_INTERVAL` sets it. */
  metricsMs: 60_000,
  /** How long one export of metrics may take, at most the time between two. `OTEL_METRIC_EXPORT_TIMEOUT` sets it. */
  metricsExportMs: 30_000,
  /** The part of the time that pages of metrics may take: scrapers ask every 15 s, and strangers may in a loop. */
  pagesShare: 0.1,
  /** How much of their part pages may use ahead after a time in which nobody asked. No page waits longer for others: scrapers give up after 10 s. */
  pagesBurstMs: 2000,
  /** How long a stopping program waits for its last spans, and for its last metrics, to be sent. */
  shutdownMs: 3000,

  /** Audit records that wait while their file takes nothing: some ten thousand. Further ones are lost and counted. */
  auditQueueBytes: 8 * 1024 * 1024,
  /** Delay before an audit file that cannot be reopened is tried again. Meanwhile the old file stays in use. */
  auditReopenMs: 1000,
  /** Characters of a peer's own text that an audit record holds. The rest is cut off. */
  auditTextCharacters: 500,
  /** Names in one list of an audit record. A change of 10,000 tenants is one line still. */
  auditNames: 100,
  /**
   * Refusals of one kind that get an audit record each in a window; the rest are counted. A kind is a port, or a tenant whose peer
   * has proven itself, so that who has proven nothing crowds out nobody's records, and fills 20 GB of a disk in a month at most.
   */
  auditRefusals: { most: 20, windowMs: 10_000 },

  /** Log lines that wait while standard error takes nothing. Further ones are lost, and a line says how many. */
  logQueueBytes: 1024 * 1024,
  /** Delay before lines that wait, of the log or the audit, are written again if no new line arrives. */
  logRetryMs: 100,
  /** How long a full log, and a full audit, may delay a process that exits. */
  logExitMs: 200,
  /** The pause between two tries to write to a full log while a process exits. */
  logExitRetryMs: 5,
  /** The last log lines that a program keeps for its operators. */
  recentLines: 1000,
  /** Characters of a log line that is kept whole. A longer one is shortened. Few lines exceed 500. */
  recentLineCharacters: 8000,
  /** Refusals of one kind that are logged in a window; the rest are counted. A port scan must not fill a disk. */
  logRefusals: { most: 10, windowMs: 10_000 },
  /** The same of lines about one link, agent, the registry or the audit's disk, which may flap for days. */
  logFlaps: { most: 10, windowMs: 60_000 },
  /** Names of tenants in one log line. */
  logNames: 20,

  /** Tenants, and hubs, that have a line of their own in a family of metrics. The rest share one line, or have none. */
  metricNames: 1000,
  /** The longest name that has a line of its own. A tenant's name has at most 63 characters. */
  metricNameCharacters: 128,
  /**
   * Time between two samples of the event loop's delay. A delay that callers notice takes as long. Each sample wakes a process that would
   * sleep: every 20 ms, that was half of what an idle agent or hub cost its node.
   */
  loopSampleMs: 100,
  /** Samples that one delay of the event loop counts for, so that a process that was stopped for an hour reports it and goes on. */
  loopSamplesMissed: 600,
  /** How far the clock of spans may be from the system's before it follows. The system's has steps of 1 ms. */
  clockDriftMs: 2,
};
