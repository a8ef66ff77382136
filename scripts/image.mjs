// npm run image: builds the Containerfile without a daemon, runs each program of the image, and writes it to dist/image: an OCI archive of
// each target, what it consists of (CycloneDX), and the licences. Needs buildah.
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { command, installed, seconds } from './lib/command.mjs';
import { programs, ROOT, readJson } from './lib/workspace.mjs';

const HELP = `Usage: npm run image -- [options]
  --node IMAGE       image with Node and npm to build on: its name in a mirror (default: what the Containerfile says)
  --registry URL     mirror of npm's registry
  --authority FILE   certificate authority of that mirror, PEM
  --target NAME      build only this target: isthmus, frontend-gw, backend-hub, proxy-agent or proxy-server`;
const BUILD_MS = 30 * 60_000;
const OUT = join(ROOT, 'dist', 'image');
/** Isolation that needs no privileges and no container runtime. */
const CHROOT = ['--isolation', 'chroot'];

const string = { type: 'string' };
const { values } = parseArgs({
  options: { node: string, registry: string, authority: string, target: string, help: { type: 'boolean' } },
});

async function buildah(args, timeout) {
  const { status, output } = await command(['buildah', ...args], { timeout });
  if (status !== 0) throw new Error(`buildah ${args.join(' ')}: ${output.slice(-4000)}`);
  return output;
}

/** Commits make images with equal times of equal trees; a tree without a history has the epoch. */
async function commitTime() {
  const { status, output } = await command(['git', 'log', '-1', '--format=%ct']);
  return status === 0 ? output.trim() : '0';
}

function buildArgs() {
  const given = {
    NODE: values.node,
    npm_config_registry: values.registry,
    npm_config_ca: values.authority && readFileSync(values.authority, 'utf8'),
  };
  return Object.entries(given).flatMap(([name, value]) => (value ? ['--build-arg', `${name}=${value}`] : []));
}

/** Builds a target, and returns the name of its image. The last target is plain isthmus. */
async function build(target, version, time) {
  const image = `${target}:${version}`;
  const chosen = target === 'isthmus' ? [] : ['--target', target];
  const options = [...CHROOT, '--layers', '--timestamp', time, ...chosen, ...buildArgs()];
  await buildah(['bud', ...options, '--file', 'Containerfile', '--tag', image, '.'], BUILD_MS);
  const archive = join(OUT, `${target}-${version}.tar`);
  rmSync(archive, { force: true });
  await buildah(['push', image, `oci-archive:${archive}:${image}`], BUILD_MS);
  console.log(`ok    ${archive}: ${(statSync(archive).size / 1e6).toFixed(1)} MB`);
  return image;
}

/** Runs every program of an image, and takes from it what it says of itself. */
async function tryOut(image) {
  const container = (await buildah(['from', '--pull-never', image])).trim();
  const run = (...args) => buildah(['run', ...CHROOT, container, '--', ...args]);
  try {
    for (const name of programs().flatMap(({ manifest }) => Object.keys(manifest.bin))) {
      for (const path of [`/${name}`, `/usr/bin/${name}`]) {
        console.log(`ok    ${path} --version: ${(await run(path, '--version')).trim()}`);
      }
    }
    for (const file of ['sbom.cdx.json', 'licences.txt']) {
      const script = `process.stdout.write(fs.readFileSync('/usr/lib/isthmus/${file}'))`;
      writeFileSync(join(OUT, file), await run('/usr/local/bin/node', '-e', script));
      console.log(`ok    ${join(OUT, file)}`);
    }
  } finally {
    await buildah(['rm', container]);
  }
}

async function main() {
  if (values.help) return console.log(HELP);
  if (!installed('buildah'))
    throw new Error('buildah is not installed: apt-get install buildah (Debian, Ubuntu), dnf install buildah (Fedora)');
  const { version } = readJson(join(ROOT, 'package.json'));
  mkdirSync(OUT, { recursive: true });
  const time = await commitTime();
  const begin = performance.now();
  const targets = values.target
    ? [values.target]
    : ['isthmus', 'frontend-gw', 'backend-hub', 'proxy-agent', 'proxy-server'];
  for (const [index, target] of targets.entries()) {
    const image = await build(target, version, time);
    if (index === 0) await tryOut(image);
  }
  console.log(`Built and run in ${seconds(performance.now() - begin)}`);
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
