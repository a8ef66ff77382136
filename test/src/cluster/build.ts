import { cpSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { saying } from '../harness/go-program.ts';
import { type Command, must, run } from './command.ts';
import { ANP_VERSION, BASE, BUILT, KEPT, KUBERNETES_FACTS, NODE, SOURCES, VERSION } from './settings.ts';

const KUBERNETES = [
  'kube-apiserver',
  'kube-controller-manager',
  'kube-proxy',
  'kube-scheduler',
  'kubeadm',
  'kubectl',
  'kubelet',
];
const ANP = ['server', 'agent'].map((name) => `sigs.k8s.io/apiserver-network-proxy/cmd/${name}`);
/** From nothing, Kubernetes takes 20 minutes of two processors. */
const BUILD_MS = 3 * 60 * 60_000;
/** What Debian's image needs: BusyBox, kube-proxy's tools, the library that Node loads, and Redis. */
const PACKAGES = ['busybox', 'ca-certificates', 'conntrack', 'ipset', 'iptables', 'kmod', 'libatomic1', 'redis-server'];
const NPM = '11.21.2';

/** The image on which Isthmus is built. */
export const NODE_IMAGE = `localhost/isthmus-cluster-node:${NODE}`;

/** The images by their target in the Containerfile; the names are those that kubeadm and the manifests ask for. */
const NAMES: Readonly<Record<string, readonly string[]>> = {
  node: [NODE_IMAGE],
  kubernetes: KUBERNETES.slice(0, 4).map((name) => `registry.k8s.io/${name}:${VERSION}`),
  coredns: ['registry.k8s.io/coredns/coredns:v1.12.1'],
  redis: ['docker.io/library/redis:7.2-bookworm'],
  anp: ['server', 'agent'].map((name) => `registry.k8s.io/kas-network-proxy/proxy-${name}:${ANP_VERSION}`),
  probe: ['docker.io/library/probe:1'],
  busybox: ['docker.io/library/busybox:1.37'],
  pause: ['registry.k8s.io/pause:3.10.1'],
};

/**
 * Builds everything but Isthmus, once for each version, from Go's, Debian's and npm's packages. There need be no registry of images. A
 * build that was interrupted goes on where it was.
 */
export async function build(say: (text: string) => void): Promise<void> {
  if (existsSync(BUILT)) return;
  const fresh = `${BUILT}.fresh`;
  const bin = join(fresh, 'bin/');
  for (const directory of [bin, join(fresh, 'anp')]) mkdirSync(directory, { recursive: true });
  const step = async (what: string, work: () => Promise<unknown>) => {
    using _saying = saying(what, say);
    await work();
  };
  await step(`Kubernetes ${VERSION}`, () => kubernetes(bin));
  await step('CoreDNS', () => go('coredns', ['.'], bin));
  await step(`apiserver-network-proxy ${ANP_VERSION}`, () => go('anp', ANP, join(fresh, 'anp/')));
  await step('the probe', () => go('programs', ['./init', './probe'], bin));
  await step('Debian', () => debian(join(fresh, 'debian.tar')));
  await step('Node', () => node(join(fresh, 'node')));
  await step('images', () => images(fresh));
  renameSync(fresh, BUILT);
  const old = readdirSync(KEPT).filter((name) => name.startsWith('v') && !BUILT.endsWith(name));
  for (const name of old) rmSync(join(KEPT, name), { recursive: true });
}

function kubernetes(to: string): Promise<string> {
  const programs = KUBERNETES.map((name) => `k8s.io/kubernetes/cmd/${name}`);
  return go('kubernetes', programs, to, KUBERNETES_FACTS);
}

/** Builds programs of a module. What an interrupted build has compiled stays. */
function go(
  module: string,
  packages: readonly string[],
  to: string,
  linkerFlags: readonly string[] = [],
): Promise<string> {
  const options = ['-trimpath', '-buildvcs=false', '-mod=readonly', '-ldflags', ['-s -w', ...linkerFlags].join(' ')];
  const command: Command = ['nice', '-n', '15', 'go', 'build', ...options, '-o', to, ...packages];
  return must(command, { cwd: join(SOURCES, module), env: { CGO_ENABLED: '0' }, deadline: BUILD_MS });
}

async function debian(to: string): Promise<void> {
  if (existsSync(to)) return;
  const options = ['--quiet', '--variant=minbase', '--format=tar', `--include=${PACKAGES.join(',')}`];
  await must(['nice', '-n', '15', 'mmdebstrap', ...options, 'bookworm', `${to}.part`], { deadline: BUILD_MS });
  renameSync(`${to}.part`, to);
}

/** Node and npm as packages, and where this machine gets packages: its registry, and the authority that it trusts. */
async function node(to: string): Promise<void> {
  rmSync(to, { recursive: true, force: true });
  mkdirSync(to);
  writeFileSync(join(to, 'package.json'), '{}');
  const packages = [`node-linux-${process.arch}@${NODE}`, `npm@${NPM}`];
  await must(['npm', 'install', '--no-audit', '--ignore-scripts', '--no-package-lock', ...packages], {
    cwd: to,
    deadline: BUILD_MS,
  });
  const setting = async (name: string) => (await must(['npm', 'config', 'get', name], { cwd: to })).trim();
  const authority = await setting('cafile');
  cpSync(authority === 'null' ? '/etc/ssl/certs/ca-certificates.crt' : authority, join(to, 'authority.pem'), {
    dereference: true,
  });
  writeFileSync(join(to, 'npmrc'), `registry=${await setting('registry')}\ncafile=/usr/local/etc/authority.pem\n`);
}

async function images(directory: string): Promise<void> {
  for (const [target, names] of Object.entries(NAMES)) {
    const tags = names.flatMap((name) => ['--tag', name]);
    const file = ['--file', join(SOURCES, 'Containerfile'), '--build-arg', `ARCH=${process.arch}`];
    const options = ['--isolation', 'chroot', '--layers', '--target', target, ...file, ...tags];
    await must(['buildah', 'bud', ...options, directory], { deadline: BUILD_MS });
    const layout = join(directory, target === 'node' ? 'base' : 'images');
    for (const name of names) await push(name, `oci:${layout}:${name}`);
  }
}

/** Puts the image of Node back where `npm run image` finds it, if buildah has lost it. */
export async function restoreNodeImage(): Promise<void> {
  if ((await run(['buildah', 'inspect', '--type', 'image', NODE_IMAGE])).status === 0) return;
  const id = await must(['buildah', 'pull', '--quiet', `oci:${BASE}:${NODE_IMAGE}`], { deadline: BUILD_MS });
  await must(['buildah', 'tag', id.trim(), NODE_IMAGE]);
}

/** Copies an image out of buildah's storage. */
async function push(image: string, to: string): Promise<void> {
  await must(['buildah', 'push', '--quiet', image, to], { deadline: BUILD_MS });
}
