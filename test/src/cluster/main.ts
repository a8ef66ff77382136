// npm run cluster: a real Kubernetes cluster on this machine with Isthmus from k8s/, checked, and down again.
import { cpSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { VERSION } from '@isthmus/service';
import { ROOT } from '../harness/runtime.ts';
import { helmProgram } from '../k8s/chart.ts';
import { say } from '../rig/command.ts';
import { build, NODE_IMAGE, restoreNodeImage } from './build.ts';
import { ended, must } from './command.ts';
import { bringClusterApi } from './hoster.ts';
import { unfit } from './machine.ts';
import type { ClusterOptions, Options } from './options.ts';
import { Machine } from './outside.ts';
import { writePage } from './report.ts';
import { KEPT } from './settings.ts';
import { WAYS, type Way } from './way.ts';

const IMAGE_MS = 30 * 60_000;

/** Builds Isthmus' image from the work tree by `npm run image`, and copies its archive. */
async function isthmusImage(archive: string): Promise<void> {
  const start = performance.now();
  await restoreNodeImage();
  const options = ['--node', NODE_IMAGE, '--target', 'isthmus'];
  await must([process.execPath, join(ROOT, 'scripts/image.mjs'), ...options], { deadline: IMAGE_MS });
  cpSync(join(ROOT, `dist/image/isthmus-${VERSION}.tar`), archive);
  say(`        npm run image (${((performance.now() - start) / 1000).toFixed(1)} s)`);
}

/** Ways by the cluster that they share. */
function clusters(chosen: readonly string[]): string[][] {
  const ways = (Object.entries(WAYS) as [string, Way][]).filter(
    ([name]) => chosen.length === 0 || chosen.includes(name),
  );
  const shared = ways.filter(([, { apart }]) => !apart).map(([name]) => name);
  const apart = ways.filter(([, way]) => way.apart).map(([name]) => [name]);
  return shared.length > 0 ? [shared, ...apart] : apart;
}

async function cluster({ way, only, short, stay }: ClusterOptions): Promise<number> {
  await using machine = new Machine();
  const image = join(machine.directory, 'isthmus.tar');
  const outcomes = join(machine.directory, 'outcomes.json');
  await isthmusImage(image);
  // There is no network in the cluster's machine.
  if (way.includes('helm') || way.includes('hoster')) await helmProgram();
  if (way.includes('hoster')) await bringClusterApi(machine.directory);
  const options: Options = { image, way, only, short, stay, outcomes };
  const program = [process.execPath, fileURLToPath(new URL('./inside.ts', import.meta.url)), JSON.stringify(options)];
  const status = await machine.run([...program, machine.directory, machine.name], ended.signal);
  const whole = only.length === 0 && !short;
  if (status === 0 && whole) writePage(JSON.parse(readFileSync(outcomes, 'utf8')));
  return status;
}

/** Returns the exit status. */
export async function main(values: ClusterOptions): Promise<number> {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => ended.abort());
  const reason = unfit(values.build);
  if (reason) {
    say(`skipped the cluster: ${reason}\n\n0 passed, 0 failed, 1 skipped`);
    return values['if-possible'] ? 0 : 1;
  }
  mkdirSync(KEPT, { recursive: true });
  if (values.build) await build(say);
  let status = 0;
  for (const way of clusters(values.way)) status ||= await cluster({ ...values, way });
  return status;
}
