// npm run image: builds the Containerfile without a daemon, runs each program of the image, and writes it to dist/image: an OCI archive of
// each target. Needs buildah.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { seconds } from './lib/command.mjs';
import * as images from './lib/image.mjs';
import { versionOf } from './lib/version.mjs';
import { ROOT } from './lib/workspace.mjs';

const HELP = `Usage: npm run image -- [options]
${images.SOURCE_HELP}
  --target NAME      build only this target: ${images.TARGETS.join(', ')}
  --arch NAME        for this processor: ${images.ARCHITECTURES.join(' or ')} (default: this machine's)
  --again            build it once more, from nothing, and compare the two`;
const OUT = join(ROOT, 'dist', 'image');

const { values } = parseArgs({
  options: {
    ...images.SOURCE_OPTIONS,
    target: { type: 'string' },
    arch: { type: 'string', default: images.HERE },
    again: { type: 'boolean' },
    help: { type: 'boolean' },
  },
});

/** Fails unless a build from nothing makes the same image. */
async function compare(image, build) {
  const before = await images.digestOf(image);
  const after = await images.digestOf(await build());
  if (before !== after) throw new Error(`two builds of ${image} differ: ${before}, then ${after}`);
  console.log(`ok    two builds make the same image: ${after}`);
}

async function main() {
  if (values.help) return console.log(HELP);
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
