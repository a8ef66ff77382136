import { chosen, commandLine } from '../rig/command.ts';
import { WAYS } from './way.ts';

// scripts/cluster.mjs reads these before anything is installed: like what it imports, this file needs only Node.

/** In the order in which a run takes them. */
const WAY_NAMES = Object.keys(WAYS);

/** Returns the options of `npm run cluster`. Ends the process if they are wrong. */
export function clusterOptions() {
  const texts = { type: 'string', multiple: true, default: [] as string[] } as const;
  const { values } = commandLine(
    'cluster',
    {
      build: {
        ...{ type: 'boolean', default: false },
        says: 'first build Kubernetes, its images and a base for ours, if they are not kept from before: 20 min of two processors',
      },
      way: {
        ...{ ...texts, value: 'NAME' },
        says: `only this way of the API server to the plane, may be repeated: ${WAY_NAMES.join(', ')}`,
      },
      only: { ...texts, value: 'TEXT', says: 'only checks and faults with this in their names, may be repeated' },
      short: { type: 'boolean', default: false, says: 'do not wait for old pods that drain for two minutes' },
      stay: { type: 'boolean', default: false, says: 'keep the cluster after the checks, until Ctrl-C' },
      'if-possible': { type: 'boolean', default: false, says: 'where the cluster cannot run, say why, and succeed' },
    },
    'A run without --only and --short writes the rows of its ways into the table of docs/KUBERNETES.md. ISTHMUS_CLUSTER_CACHE: where builds are kept.',
  );
  chosen(
    WAY_NAMES.map((name) => ({ name })),
    values.way,
  );
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
