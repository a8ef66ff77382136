import { parseArgs } from 'node:util';

/** The ways of the API server to the plane, in the order in which a run takes them: the keys of WAYS in test/src/cluster/way.ts. */
export const WAY_NAMES = ['grpc', 'connect', 'page', 'mtls', 'helm', 'ha'];

export const USAGE = `npm run cluster [-- OPTIONS]
  --build         first build Kubernetes, its images and a base for ours, if they are not kept from before: 20 min of two processors
  --way NAME      only this way of the API server to the plane, may be repeated: ${WAY_NAMES.join(', ')}
  --only TEXT     only checks and faults with this in their names, may be repeated
  --short         do not wait for old pods that drain for two minutes
  --stay          keep the cluster after the checks, until Ctrl-C
  --if-possible   where the cluster cannot run, say why, and succeed
A run without --only and --short writes the rows of its ways into the table of docs/KUBERNETES.md. ISTHMUS_CLUSTER_CACHE: where builds are kept.`;

const boolean = { type: 'boolean', default: false };
const strings = { type: 'string', multiple: true, default: [] };
const OPTIONS = {
  build: boolean,
  way: strings,
  only: strings,
  short: boolean,
  stay: boolean,
  'if-possible': boolean,
  help: boolean,
};

/** Returns the options of `npm run cluster`. @throws with what is wrong with them */
export function clusterOptions(args) {
  const { values } = parseArgs({ args, options: OPTIONS });
  const unknown = values.way.filter((name) => !WAY_NAMES.includes(name));
  if (unknown.length > 0) throw new Error(`--way ${unknown[0]}: there is no such way, but ${WAY_NAMES.join(', ')}`);
  return values;
}
