/** Times, sizes and counts of the programs' flags beside the defaults of docs/FLAGS.md: times in milliseconds, sizes in bytes. */
export const FLAGS = {
  /**
   * How long tunnels may take to finish after SIGTERM at frontend-gw and backend-hub: long enough for the requests of an API server, and
   * shorter than the 30 s after which Kubernetes kills a pod. `--graceful-shutdown-timeout` sets it.
   */
  drainMs: 25_000,
  /** The same for `isthmus hold`: it leaves when its last tunnel ends, or its pod's grace is over. */
  holdDrainMs: 24 * 3_600_000,
  /** The part of what a memory limit leaves for tunnels that they may keep for `--resume-memory`. */
  resumePart: 1 / 4,
  /** How many keys of a mounted Secret or ConfigMap an error shows that looked for another one. */
  keysShown: 10,
};
