import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { root } from '../k8s/manifests.ts';

/** Ends what hangs, and judges no speed: the rules' tests take 3 s of a processor, and 60 s where 25 others want it. */
const RUN_MS = 5 * 60_000;
/** Where `npm test` unpacks Prometheus (scripts/lib/tools.mjs). */
const UNPACKED = join(root, 'node_modules/.cache/isthmus-prometheus/usr/bin');

/** Returns a program from the PATH or from there, or undefined if there is none. */
function find(name: string): string | undefined {
  const runs = (place: string) => spawnSync(place, ['--version'], { timeout: RUN_MS }).status === 0;
  return [name, join(UNPACKED, name)].find(runs);
}

const found = find('promtool');

/** Prometheus itself, which comes with promtool. */
export const prometheus = find('prometheus');

/** Why this machine cannot run promtool, or false. */
export const noPromtool: string | false = found === undefined && 'promtool is not installed';

/** Runs promtool in k8s/monitoring. */
export function promtool(args: readonly string[], input = '') {
  const cwd = join(root, 'k8s/monitoring');
  const { status, stdout, stderr } = spawnSync(found ?? '', args, { cwd, input, encoding: 'utf8', timeout: RUN_MS });
  return { status, stdout, output: stdout + stderr };
}
