/** Times, sizes and counts of the programs' flags beside the defaults of docs/FLAGS.md: times in milliseconds, sizes in bytes. */
export const FLAGS = {
  /**
   * How long tunnels may take to finish after SIGTERM at frontend-gw and backend-hub: long enough for the requests of an API server, and
   * shorter than the 30 s after which Kubernetes kills a pod. `--graceful-shutdown-timeout` sets it.
   */
  drainMs: 25_000,
  /**
   * The same for `isthmus hold`, which serves new dials meanwhile. A kubelet starts the next one only once it has ended, so an exec of a day must
   * not hold it: a minute lets the calls of an API server end.
   */
  holdDrainMs: 60_000,
  /** The part of what a memory limit leaves for tunnels that they may keep for `--resume-memory`. */
  resumePart: 1 / 4,
  /** How many keys of a mounted Secret or ConfigMap an error shows that looked for another one. */
  keysShown: 10,
};
