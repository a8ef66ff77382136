// npm run cluster: a real Kubernetes cluster on this machine with Isthmus from k8s/, checked, and down again.
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { ROOT } from '../harness/runtime.ts';
import { build, NODE_IMAGE, push, restoreNodeImage } from './build.ts';
import { ended, must } from './command.ts';
import { unfit } from './machine.ts';
import type { Options } from './options.ts';
import { Machine } from './outside.ts';
import { writePage } from './report.ts';
import { KEPT } from './settings.ts';
import { WAYS } from './way.ts';

const IMAGE_MS = 30 * 60_000;

const USAGE = `npm run cluster [-- OPTIONS]
  --build         first build Kubernetes, its images and a base for ours, if they are not kept from before: 20 min of two processors
  --way NAME      only this way of the API server to the plane, may be repeated: ${Object.keys(WAYS).join(', ')}
  --only TEXT     only checks and faults with this in their names, may be repeated
  --short         do not wait for old pods that drain for two minutes
  --stay          keep the cluster after the checks, until Ctrl-C
  --if-possible   where the cluster cannot run, say why, and succeed
A run without --way, --only and --short writes its table into docs/KUBERNETES.md. ISTHMUS_CLUSTER_CACHE: where builds are kept.
`;

const boolean = { type: 'boolean', default: false } as const;
const strings = { type: 'string', multiple: true, default: [] as string[] } as const;
const { values } = parseArgs({
  options: {
    build: boolean,
    way: strings,
    only: strings,
    short: boolean,
    stay: boolean,
    'if-possible': boolean,
    help: boolean,
  },
});

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** Builds Isthmus' image from the work tree as `npm run image` does, and writes it to an archive. */
async function isthmusImage(archive: string): Promise<void> {
  const start = performance.now();
  await restoreNodeImage();
  const options = ['--node', NODE_IMAGE, '--target', 'isthmus'];
  await must([process.execPath, join(ROOT, 'scripts/image.mjs'), ...options], { deadline: IMAGE_MS });
  await push('isthmus:0.1.0', `oci-archive:${archive}:docker.io/library/isthmus:0.1.0`);
  say(`        npm run image (${((performance.now() - start) / 1000).toFixed(1)} s)`);
}

async function cluster(): Promise<number> {
  const { way: ways, only, short, stay } = values;
  await using machine = new Machine();
  const image = join(machine.directory, 'isthmus.tar');
  const outcomes = join(machine.directory, 'outcomes.json');
  await isthmusImage(image);
  const options: Options = { image, ways, only, short, stay, outcomes };
  const program = [process.execPath, fileURLToPath(new URL('./inside.js', import.meta.url)), JSON.stringify(options)];
  const status = await machine.run([...program, machine.directory, machine.name], ended.signal);
  const whole = ways.length === 0 && only.length === 0 && !short;
  if (status === 0 && whole) writePage(JSON.parse(readFileSync(outcomes, 'utf8')));
  return status;
}

async function main(): Promise<number> {
  const unknown = values.way.filter((name) => !(name in WAYS));
  if (values.help || unknown.length > 0) {
    say(USAGE);
    return values.help ? 0 : 2;
  }
  const reason = unfit(values.build);
  if (reason) {
    say(`skipped the cluster: ${reason}\n\n0 passed, 0 failed, 1 skipped`);
    return values['if-possible'] ? 0 : 1;
  }
  mkdirSync(KEPT, { recursive: true });
  if (values.build) await build(say);
  return cluster();
}

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.once(signal, () => ended.abort());
}
process.exitCode = await main();
