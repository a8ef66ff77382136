import { readFileSync, rmSync, statSync } from 'node:fs';
import { archive } from './archive.mjs';
import { command, installed } from './command.mjs';
import { commandsOf, inScratch, programs } from './workspace.mjs';

const BUILD_MS = 30 * 60_000;
/** Isolation that needs no privileges and no container runtime. */
const CHROOT = ['--isolation', 'chroot'];
const NODE_ARCHITECTURES = { x64: 'amd64', arm64: 'arm64' };

export const TARGETS = ['isthmus', 'frontend-gw', 'backend-hub', 'proxy-agent', 'proxy-server', 'tenants-sync'];
export const HERE = NODE_ARCHITECTURES[process.arch];
export const ARCHITECTURES = Object.values(NODE_ARCHITECTURES);

/** What the Containerfile builds on, as options of a script. */
export const SOURCE_OPTIONS = {
  node: {
    ...{ type: 'string', value: 'IMAGE' },
    says: 'image with Node and npm to build on: its name in a mirror (default: what the Containerfile says)',
  },
  registry: { type: 'string', value: 'URL', says: "mirror of npm's registry" },
  authority: { type: 'string', value: 'FILE', says: 'certificate authority of that mirror, PEM' },
};

async function buildah(args, timeout) {
  const { status, output } = await command(['buildah', ...args], { timeout });
  if (status !== 0) throw new Error(`buildah ${args.join(' ')}: ${output.slice(-4000)}`);
  return output.trim();
}

export function requireBuildah() {
  if (!installed('buildah'))
    throw new Error('buildah is not installed: apt-get install buildah (Debian, Ubuntu), dnf install buildah (Fedora)');
}

/**
 * Builds a target of the Containerfile, and returns the name of its image. The last target is plain isthmus.
 * @param sources the values of SOURCE_OPTIONS
 * @param kept whether steps that were built before may be taken again
 */
export async function buildImage(target, { version, architecture = HERE, sources, kept = true }) {
  // That for this machine's processor has the plain one.
  const name = `${target}:${version}${architecture === HERE ? '' : `-${architecture}`}`;
  const given = {
    // Builders should know it by themselves; buildah 1.28 takes the image's platform for it.
    BUILDPLATFORM: `linux/${HERE}`,
    NODE: sources.node,
    npm_config_registry: sources.registry,
    npm_config_ca: sources.authority && readFileSync(sources.authority, 'utf8'),
  };
  const buildArgs = Object.entries(given).flatMap(([key, value]) => (value ? ['--build-arg', `${key}=${value}`] : []));
  const chosen = target === 'isthmus' ? [] : ['--target', target];
  // All times are the epoch: steps that are taken again would have the time of the build before.
  const options = [
    '--layers',
    ...(kept ? [] : ['--no-cache']),
    '--timestamp',
    '0',
    '--platform',
    `linux/${architecture}`,
  ];
  const what = [...CHROOT, ...options, ...chosen, ...buildArgs, '--file', 'Containerfile', '--tag', name];
  await buildah(['bud', ...what, '.'], BUILD_MS);
  return name;
}

/** Returns the whole name of an image: containerd takes no other for what a pod names `isthmus:0.1.0`. */
function wholeName(image) {
  return `docker.io/library/${image}`;
}

/** Writes an image to an archive, and returns its size in MB. */
export async function saveImage(image, file) {
  rmSync(file, { force: true });
  await buildah(['push', image, `oci-archive:${file}:${wholeName(image)}`], BUILD_MS);
  return statSync(file).size / 1e6;
}

/**
 * Writes images into one archive, which holds what they share once. Each has a name there, and an index of its architectures.
 * @param images the names of images by their names in the archive, one for each architecture
 */
export async function saveImages(images, file) {
  await inScratch(async (layout) => {
    for (const [name, each] of Object.entries(images)) {
      const list = `isthmus-release/${name}`;
      await command(['buildah', 'manifest', 'rm', list]);
      await buildah(['manifest', 'create', list, ...each]);
      await buildah(
        ['manifest', 'push', '--all', '--format', 'oci', list, `oci:${layout}:${wholeName(name)}`],
        BUILD_MS,
      );
      await buildah(['manifest', 'rm', list]);
    }
    await archive(file, layout);
  });
}

/** Returns the digest of an image, which covers all that it holds. */
export async function digestOf(image) {
  return await buildah(['inspect', '--type', 'image', '--format', '{{.FromImageDigest}}', image]);
}

/** Runs every program of an image at both of its paths, and says so; not those of another processor than this machine's. */
export async function runPrograms(image, architecture) {
  if (architecture !== HERE) return console.log(`not run: the programs of ${image} are for ${architecture}`);
  const container = await buildah(['from', '--pull-never', image]);
  try {
    for (const path of programs()
      .flatMap(commandsOf)
      .flatMap((name) => [`/${name}`, `/usr/bin/${name}`]))
      console.log(`ok    ${path} --version: ${await buildah(['run', ...CHROOT, container, '--', path, '--version'])}`);
  } finally {
    await buildah(['rm', container]);
  }
}
