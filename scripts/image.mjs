// npm run image: builds the Containerfile without a daemon, runs each program of the image, and writes it to dist/image: an OCI archive of
// each target. Needs buildah.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { commandLine } from '../test/src/rig/command.ts';
import { seconds } from './lib/command.mjs';
import * as images from './lib/image.mjs';
import { versionOf } from './lib/version.mjs';
import { ROOT } from './lib/workspace.mjs';

const OUT = join(ROOT, 'dist', 'image');

const { values } = commandLine('image', {
  ...images.SOURCE_OPTIONS,
  target: { type: 'string', value: 'NAME', says: `build only this target: ${images.TARGETS.join(', ')}` },
  arch: {
    ...{ type: 'string', default: images.HERE, value: 'NAME' },
    says: `for this processor: ${images.ARCHITECTURES.join(' or ')} (default: this machine's)`,
  },
  again: { type: 'boolean', says: 'build it once more, from nothing, and compare the two' },
});

/** Fails unless a build from nothing makes the same image. */
async function compare(image, build) {
  const before = await images.digestOf(image);
  const after = await images.digestOf(await build());
  if (before !== after) throw new Error(`two builds of ${image} differ: ${before}, then ${after}`);
  console.log(`ok    two builds make the same image: ${after}`);
}

async function main() {
  images.requireBuildah();
  const version = versionOf();
  mkdirSync(OUT, { recursive: true });
  const options = { version, architecture: values.arch, sources: values };
  const begin = performance.now();
  const targets = values.target ? [values.target] : images.TARGETS;
  for (const [index, target] of targets.entries()) {
    const image = await images.buildImage(target, options);
    const archive = join(OUT, `${image.replace(':', '-')}.tar`);
    const megabytes = await images.saveImage(image, archive);
    console.log(`ok    ${archive}: ${megabytes.toFixed(1)} MB`);
    if (index > 0) continue;
    await images.runPrograms(image, values.arch);
    if (values.again) await compare(image, () => images.buildImage(target, { ...options, kept: false }));
  }
  console.log(`Built and run in ${seconds(performance.now() - begin)}`);
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
