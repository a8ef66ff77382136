import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { ROOT } from '../harness/runtime.ts';

/** What the cluster is made of: Go modules, the images' Containerfile, configurations and manifests. */
export const SOURCES = join(ROOT, 'test', 'cluster');

/** Kubernetes' version, with its v. */
export const VERSION =
  readFileSync(join(SOURCES, 'kubernetes/go.mod'), 'utf8').match(/k8s\.io\/kubernetes (v\S+)/)?.[1] ?? '';

const [, MINOR = ''] = VERSION.split('.');
const FACTS = { gitVersion: VERSION, gitMajor: '1', gitMinor: MINOR, gitTreeState: 'clean' };
/** Flags of Go's linker: what Kubernetes' programs say of their version. */
export const KUBERNETES_FACTS = ['k8s.io/component-base/version', 'k8s.io/client-go/pkg/version'].flatMap((each) =>
  Object.entries(FACTS).map(([name, value]) => `-X ${each}.${name}=${value}`),
);

/** The version of apiserver-network-proxy, with its v. */
export const ANP_VERSION =
  readFileSync(join(SOURCES, 'anp/go.mod'), 'utf8').match(/apiserver-network-proxy (v\S+)/)?.[1] ?? '';

/** The version of Node's program that the images get, as an npm package: that of Isthmus' own image. */
export const NODE =
  readFileSync(join(ROOT, 'Containerfile'), 'utf8').match(/^ARG NODE=\S+\/node:(\d+\.\d+\.\d+)/m)?.[1] ?? '';

/** The node's address, and that of its way out. k8s/README.md and its overlay name this address, so both apply as they are. */
export const ADDRESS = '192.0.2.10';
export const ROUTER = '192.0.2.1';

/** Where everything is kept between runs. Overlay mounts need a disk, so this is no directory for temporary files. */
export const KEPT =
  process.env.ISTHMUS_CLUSTER_CACHE ?? join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'isthmus-cluster');

/** What was built, by the versions of Kubernetes and Node, and the sources of everything else. */
export const BUILT = join(
  KEPT,
  `${VERSION}-${NODE}-${hashOf(['Containerfile', 'anp', 'coredns', 'kubernetes', 'programs'])}`,
);

export const BIN = join(BUILT, 'bin');

/** The images of the cluster, without Isthmus: a layout of the Open Container Initiative. */
export const IMAGES = join(BUILT, 'images');

/** The image of Node that Isthmus is built on, in the same form. */
export const BASE = join(BUILT, 'base');

function hashOf(names: readonly string[]): string {
  const hash = createHash('sha256');
  for (const path of (readdirSync(SOURCES, { recursive: true }) as string[]).sort()) {
    if (!names.some((name) => path === name || path.startsWith(`${name}/`))) continue;
    if (statSync(join(SOURCES, path)).isFile()) hash.update(path).update(readFileSync(join(SOURCES, path)));
  }
  return hash.digest('hex').slice(0, 12);
}
