/** Times and counts of the demo: times in milliseconds. */
export const DEMO = {
  /** How long a program may take to be ready, the first time or again. A busy machine starts seven programs slowly. */
  readyMs: 60_000,
  /** How often a program is asked whether it is ready. */
  pollMs: 50,
  /** How long an answer to that may take. */
  probeMs: 1000,
  /** How long programs let running tunnels finish after Ctrl-C. */
  drainMs: 3000,
  /** How long programs may take to end, far longer than their drain. Then they are killed; who does not want to wait presses Ctrl-C again. */
  stopMs: 30_000,
  /** A program that ends so often within a minute is not started again: something is wrong with it. */
  deathsPerMinute: 5,
  /** How many of a program's last lines are shown when it fails. */
  linesKept: 20,
  /** How long the demo's certificates are valid: so long that `isthmus check` does not warn about them. */
  certificateMs: 30 * 86_400_000,
  /** From one port for a purpose to the next: the ports of a plane differ by less. */
  portStep: 10,
  /** How many ports for a purpose are tried. */
  portSteps: 200,
  /** The size of a chunk of a download, in bytes. */
  chunkBytes: 512 * 1024,
  /** A download has so many chunks a second: slow enough to see what happens to it while it runs. */
  chunksPerSecond: 10,
  /** The longest download, in seconds. */
  downloadSeconds: 600,
};
