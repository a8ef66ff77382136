/** A tunnel that was cut, as the gateway of its caller told of it. Times in milliseconds since the epoch. */
interface ToldCut {
  /** What cut it, as in `isthmus_tunnels_cut_total`. */
  readonly by: string;
  readonly reason: string;
  readonly agent: string;
  /** The gateway. */
  readonly member: string;
  readonly atMs: number;
}

/** Cuts of one cause. */
export interface CutGroup {
  readonly by: string;
  /** What ended or failed: `agent agent-7`, or the gateway that cut. */
  readonly what: string;
  readonly reason: string;
  readonly tunnels: number;
  readonly firstMs: number;
  readonly lastMs: number;
}

/** Groups what was cut for the same reason by the same part of the plane. The last first. */
export function groupsOfCuts(cuts: readonly ToldCut[]): CutGroup[] {
  const groups = new Map<string, CutGroup>();
  for (const { by, reason, agent, member, atMs } of cuts) {
    const what = by === 'agent' || by === 'path' ? `agent ${agent}` : member;
    const key = JSON.stringify([by, what, reason]);
    const { tunnels = 0, firstMs = atMs, lastMs = atMs } = groups.get(key) ?? {};
    const times = { firstMs: Math.min(firstMs, atMs), lastMs: Math.max(lastMs, atMs) };
    groups.set(key, { by, what, reason, tunnels: tunnels + 1, ...times });
  }
  return [...groups.values()].sort((a, b) => b.lastMs - a.lastMs);
}
