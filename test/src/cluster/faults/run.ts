import type { Kubernetes } from '../kubernetes.ts';
import { apiAvailable, probePod } from '../probe.ts';
import type { Way } from '../way.ts';
import type { Fault } from './fault.ts';
import { type Figures, Load } from './load.ts';

/** Calls after a fault is over, which find what it has left behind. */
const CALLS_AFTER = 10;

/** A fault, and what callers met of it. */
export interface Outcome {
  readonly way: Way;
  readonly fault: string;
  readonly figures: Figures;
}

export async function runFault(
  fault: Fault,
  options: { kubernetes: Kubernetes; way: Way; short: boolean },
): Promise<Outcome> {
  await fault.comparison?.begin();
  try {
    return await underLoad(fault, options);
  } finally {
    await fault.comparison?.end();
  }
}

async function underLoad(
  fault: Fault,
  options: { kubernetes: Kubernetes; way: Way; short: boolean },
): Promise<Outcome> {
  // The fault before this may have left an API server in doubt of it for some seconds.
  await apiAvailable();
  await using load = await Load.begin(await probePod(), { ...fault, apiServers: options.way.apiServers });
  await fault.commit({ ...options, load });
  await load.more(CALLS_AFTER);
  return { way: options.way, fault: fault.name, figures: await load.end() };
}
