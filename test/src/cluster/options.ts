import { parseArgs } from 'node:util';
import { WAYS } from './way.ts';

// scripts/cluster.mjs reads these before anything is installed: like what it imports, this file needs only Node.

/** In the order in which a run takes them. */
const WAY_NAMES = Object.keys(WAYS);

export const USAGE = `npm run cluster [-- OPTIONS]
  --build         first build Kubernetes, its images and a base for ours, if they are not kept from before: 20 min of two processors
  --way NAME      only this way of the API server to the plane, may be repeated: ${WAY_NAMES.join(', ')}
  --only TEXT     only checks and faults with this in their names, may be repeated
  --short         do not wait for old pods that drain for two minutes
  --stay          keep the cluster after the checks, until Ctrl-C
  --if-possible   where the cluster cannot run, say why, and succeed
A run without --only and --short writes the rows of its ways into the table of docs/KUBERNETES.md. ISTHMUS_CLUSTER_CACHE: where builds are kept.`;

/** Returns the options of `npm run cluster`. @throws with what is wrong with them */
export function clusterOptions(args: string[]) {
  const { values } = parseArgs({
    args,
    options: {
      build: { type: 'boolean', default: false },
      way: { type: 'string', multiple: true, default: [] },
      only: { type: 'string', multiple: true, default: [] },
      short: { type: 'boolean', default: false },
      stay: { type: 'boolean', default: false },
      'if-possible': { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  const unknown = values.way.find((name) => !WAY_NAMES.includes(name));
  if (unknown !== undefined) throw new Error(`--way ${unknown}: there is no such way, but ${WAY_NAMES.join(', ')}`);
  return values;
}

export type ClusterOptions = ReturnType<typeof clusterOptions>;

/** What main.ts tells the program in the cluster. */
export interface Options extends Pick<ClusterOptions, 'way' | 'only' | 'short' | 'stay'> {
  /** The archive of Isthmus' image. */
  readonly image: string;
  /** Where it leaves what callers met of the faults, as JSON. */
  readonly outcomes: string;
}
