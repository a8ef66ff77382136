const KIB = 1024;

/** What each half may always keep. */
const BASE = 256 * KIB;

/** The longest write, which may go beyond the rest: the 128 KiB that may wait for one that is under way, and the read that went beyond them. */
const ONE_WRITE = (128 + 64) * KIB;

/** Returns the most that the halves of so many tunnels may keep in a process, in bytes. @param memory `--resume-memory`, in MiB, for all of them */
export function mostKept(tunnels: number, memory: number): number {
  return tunnels * (BASE + ONE_WRITE) + memory * KIB * KIB;
}
