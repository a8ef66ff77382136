import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { root } from '../k8s/manifests.ts';

/** Where `npm test` unpacks Prometheus (scripts/lib/promtool.mjs). */
const UNPACKED = join(root, 'node_modules/.cache/isthmus-prometheus/usr/bin');

/** Returns a program from the PATH or from there, or undefined if there is none. */
function find(name: string): string | undefined {
  const runs = (place: string) => spawnSync(place, ['--version'], { timeout: 20_000 }).status === 0;
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
  const { status, stdout, stderr } = spawnSync(found ?? '', args, { cwd, input, encoding: 'utf8', timeout: 60_000 });
  return { status, stdout, output: stdout + stderr };
}
