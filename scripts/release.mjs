// npm run release: makes everything that a version consists of, from the one number in package.json. docs/RELEASE.md says what for.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { commandLine } from '../test/src/rig/command.ts';
import { archive, unpack } from './lib/archive.mjs';
import { command, installed, npm, seconds } from './lib/command.mjs';
import * as images from './lib/image.mjs';
import { packAll } from './lib/npm-packages.mjs';
import { ensureInstalled } from './lib/ready.mjs';
import { changesOf, krewManifest, originAddress, unlike } from './lib/release.mjs';
import { versionOf } from './lib/version.mjs';
import { filesBelow, inScratch, programs, ROOT } from './lib/workspace.mjs';

const { values } = commandLine(
  'release',
  {
    'dry-run': {
      type: 'boolean',
      says: 'of the work tree as it is; without it, the tree must be the tagged commit, and is built from nothing',
    },
    repository: {
      ...{ type: 'string', value: 'URL' },
      says: "where the sources are, for npm's packages (default: git's remote origin)",
    },
    ...images.SOURCE_OPTIONS,
  },
  `Makes everything that a version consists of in dist/release/VERSION: npm packages, chart, images, list of parts, notes, SHA256SUMS. The version
is that of package.json. Publishes nothing.`,
);
const version = versionOf();
const OUT = join(ROOT, 'dist', 'release', version);

/** Reads what is there before anything is built. Throws with everything that is missing, one line each. */
async function prepare() {
  const changes = changesOf(version, readFileSync(join(ROOT, 'CHANGELOG.md'), 'utf8'));
  const repository = values.repository ?? (await originAddress());
  const strict = [
    ...(changes.date ? [] : [`CHANGELOG.md has no date for ${version}: "## ${version} - YYYY-MM-DD"`]),
    ...(repository
      ? []
      : ['git has no remote origin with an address, and npm compares it with where a package was built: --repository']),
    ...(await unlike(version)),
  ];
  const missing = values['dry-run'] ? [] : strict;
  if (!installed('go')) missing.push('go is not installed, and Helm is built with it: https://go.dev/doc/install');
  if (missing.length > 0) throw new Error(missing.join('\n'));
  images.requireBuildah();
  return { changes, repository };
}

function add(file, what) {
  console.log(`ok    ${relative(ROOT, file)}: ${what}, ${(statSync(file).size / 1e6).toFixed(2)} MB`);
}

async function packages(repository) {
  await inScratch(async (scratch) => {
    const [programs, ...libraries] = await packAll({ to: directory('npm'), scratch, repository });
    add(programs, 'npm package: all programs');
    krew(programs, repository ?? 'https://REPOSITORY');
    for (const file of libraries) add(file, 'npm package: library');
  });
}

function krew(tarball, repository) {
  const file = join(directory('krew'), 'isthmus.yaml');
  writeFileSync(file, krewManifest({ tarball, version, repository: repository.replace(/^git\+|\.git$/g, '') }));
  add(file, "krew's manifest of kubectl isthmus");
}

/** Helm writes the time of day into its archives, so it is packed again. */
async function chart() {
  const { helm, CHART } = await import('../test/src/k8s/chart.ts');
  await inScratch(async (scratch) => {
    const { status, stderr } = await helm(['package', CHART, '--destination', scratch]);
    if (status !== 0) throw new Error(`helm package: ${stderr}`);
    const name = `isthmus-${version}.tgz`;
    const files = join(scratch, 'files');
    mkdirSync(files);
    await unpack(join(scratch, name), files);
    const file = join(directory('chart'), name);
    await archive(file, files, { compress: true });
    add(file, 'Helm chart');
  });
}

async function image() {
  const to = directory('image');
  const built = {};
  for (const architecture of images.ARCHITECTURES) {
    const options = { version, architecture, sources: values };
    for (const target of images.TARGETS) {
      const name = await images.buildImage(target, options);
      built[`${target}:${version}`] = [...(built[`${target}:${version}`] ?? []), name];
      if (target === 'isthmus') await images.runPrograms(name, architecture);
    }
  }
  const file = join(to, `isthmus-${version}.tar`);
  await images.saveImages(built, file);
  add(file, `images of ${images.TARGETS.length} targets, ${images.ARCHITECTURES.join(' and ')} (OCI)`);
}

/** What the bundles consist of, by npm, without the time and the random number that it gives each list. */
async function bill() {
  const workspaces = programs().map(({ path }) => `--workspace=${path}`);
  const what = ['--sbom-format=cyclonedx', '--package-lock-only', '--omit=dev', '--omit=optional', '--loglevel=error'];
  const { status, output } = await command(npm('sbom', ...what, ...workspaces));
  if (status !== 0) throw new Error(`npm sbom: ${output}`);
  const { serialNumber: _number, metadata, ...rest } = JSON.parse(output);
  const { timestamp: _time, ...same } = metadata;
  const file = join(OUT, 'sbom.cdx.json');
  writeFileSync(file, `${JSON.stringify({ ...rest, metadata: same }, undefined, 1)}\n`);
  add(file, 'what the bundles consist of, with licences (CycloneDX)');
}

function notes({ text }) {
  const file = join(OUT, 'notes.md');
  writeFileSync(file, `${text}\n`);
  add(file, `section ${version} of CHANGELOG.md`);
}

/** Writes what `sha256sum --check` reads. */
function sums() {
  const lines = filesBelow(OUT).map((path) => {
    const hash = createHash('sha256').update(readFileSync(path)).digest('hex');
    return `${hash}  ${relative(OUT, path)}\n`;
  });
  const file = join(OUT, 'SHA256SUMS');
  writeFileSync(file, lines.join(''));
  add(file, 'checksums of all others');
}

function directory(name) {
  const path = join(OUT, name);
  mkdirSync(path, { recursive: true });
  return path;
}

async function main() {
  const begin = performance.now();
  const { changes, repository } = await prepare();
  rmSync(OUT, { recursive: true, force: true });
  mkdirSync(OUT, { recursive: true });
  await ensureInstalled();
  await packages(repository);
  await chart();
  await image();
  await bill();
  notes(changes);
  sums();
  console.log(`\nMade in ${seconds(performance.now() - begin)}. Nothing is published.`);
  if (!values['dry-run']) console.log('docs/RELEASE.md, "Sign and publish", has the commands.');
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
