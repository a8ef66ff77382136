import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { root } from '../k8s/manifests.ts';

/** On the PATH, or where `npm test` unpacks it (scripts/lib/promtool.mjs). */
const PLACES = ['promtool', join(root, 'node_modules/.cache/isthmus-prometheus/usr/bin/promtool')];

const found = PLACES.find((place) => spawnSync(place, ['--version'], { timeout: 20_000 }).status === 0);

/** Why promtool cannot be run here, or false. */
export const noPromtool: string | false = found === undefined && 'promtool is not installed';

/** Runs it in k8s/monitoring. */
export function promtool(...args: string[]): { readonly status: number | null; readonly output: string } {
  const cwd = join(root, 'k8s/monitoring');
  const { status, stdout, stderr } = spawnSync(found ?? '', args, { cwd, encoding: 'utf8', timeout: 60_000 });
  return { status, output: stdout + stderr };
}
