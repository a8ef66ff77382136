import type { Kubernetes } from '../kubernetes.ts';
import { apiAvailable, probePod } from '../probe.ts';
import type { Way } from '../way.ts';
import { type Figures, Load, type Tolerance } from './load.ts';

/** Calls after a fault is over, which find what it has left behind. */
const CALLS_AFTER = 10;

/** What a fault is committed against. */
export interface Scene {
  readonly kubernetes: Kubernetes;
  readonly way: Way;
  readonly load: Load;
  /** Leaves out the wait for the end of what drains, which takes long calls with it two minutes later, and repetitions. */
  readonly short: boolean;
}

/** Something that is done to the cluster under load. */
export interface Fault extends Tolerance {
  readonly name: string;
  /** Puts something else there before the fault, and ours back after it. Short runs leave out such faults. */
  readonly comparison?: { begin(): Promise<void>; end(): Promise<void> };
  /** Resolves when the cluster is whole again. */
  commit(scene: Scene): Promise<void>;
}

/** A fault, and what callers met of it. */
export interface Outcome {
  readonly way: Way;
  readonly fault: string;
  readonly figures: Figures;
}

export async function runFault(fault: Fault, scene: Omit<Scene, 'load'>): Promise<Outcome> {
  await fault.comparison?.begin();
  try {
    return await underLoad(fault, scene);
  } finally {
    await fault.comparison?.end();
  }
}

async function underLoad(fault: Fault, scene: Omit<Scene, 'load'>): Promise<Outcome> {
  const { way } = scene;
  // The fault before this may have left an API server in doubt of it for some seconds.
  await apiAvailable();
  await using load = await Load.begin(await probePod(), { ...fault, apiServers: way.apiServers });
  await fault.commit({ ...scene, load });
  await load.more(CALLS_AFTER);
  return { way, fault: fault.name, figures: await load.end() };
}
