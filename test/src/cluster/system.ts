import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { must } from './command.ts';
import { Node } from './node.ts';
import { directoriesOf } from './outside.ts';
import { ADDRESS, BIN, ROUTER, SOURCES, VERSION } from './settings.ts';

/** Directories of the machine that the node may write to: it sees them, and its changes are its own. */
const WRITTEN = ['/etc', '/opt', '/tmp', '/usr', '/var'];
/** Where a file system of its own is needed: containerd mounts overlays there, and an overlay of overlays is not possible. */
const OWN = ['/var/lib/containerd', '/var/lib/etcd', '/var/lib/kubelet'];

/** What the kubelet wants of the kernel. It finds these values and leaves the machine's own, which are not the node's to change. */
const KERNEL = {
  'kernel/keys/root_maxbytes': 25_000_000,
  'kernel/keys/root_maxkeys': 1_000_000,
  'kernel/panic': 10,
  'kernel/panic_on_oops': 1,
  'vm/overcommit_memory': 1,
  'vm/panic_on_oom': 0,
};

/** Makes the namespaces that this process runs in a node. What it writes stays below a directory. */
export async function controlPlaneNode(directory: string, group: string): Promise<Node> {
  process.env.PATH = `${BIN}:${process.env.PATH}`;
  process.env.HOME = directory;
  for (const path of directoriesOf(`${group}/system`)) writeFileSync(join(path, 'cgroup.procs'), String(process.pid));
  const node = new Node('node', directory);
  await must(['hostname', node.name]);
  await mounts(node, directory);
  await network();
  mkdirSync('/etc/cni/net.d', { recursive: true });
  mkdirSync('/etc/containerd', { recursive: true });
  copyFileSync(join(SOURCES, 'pods.conflist'), '/etc/cni/net.d/pods.conflist');
  copyFileSync(join(SOURCES, 'containerd.toml'), '/etc/containerd/config.toml');
  return node;
}

/** etcd beside the cluster, and the first of kubeadm's steps: the authority that Isthmus' certificate needs. */
export async function authority(node: Node): Promise<void> {
  const urls = ['listen', 'advertise'].map((what) => `--${what}-client-urls=http://127.0.0.1:2379`);
  node.daemon('etcd', '--data-dir=/var/lib/etcd', '--unsafe-no-fsync', ...urls);
  await must(['kubeadm', 'init', 'phase', 'certs', 'ca']);
}

/** The rest of kubeadm's steps, with the patches that are in /etc/kubernetes/patches. */
export function initCluster(node: Node, group: string): Promise<void> {
  return node.kubeadm('init', { VERSION, CGROUP: `/${group}` });
}

async function mounts(node: Node, directory: string): Promise<void> {
  const mount = (...args: string[]) => must(['mount', ...args]);
  for (const path of WRITTEN.filter((each) => !directory.startsWith(`${each}/`))) {
    const upper = join(directory, 'changed', path);
    const work = join(directory, 'work', path);
    for (const each of [upper, work]) mkdirSync(each, { recursive: true });
    await mount('-t', 'overlay', 'overlay', '-o', `lowerdir=${path},upperdir=${upper},workdir=${work}`, path);
  }
  await node.mountOwn(OWN);
  for (const [name, value] of Object.entries(KERNEL)) {
    const file = join(directory, name.replaceAll('/', '.'));
    writeFileSync(file, `${value}\n`);
    await mount('--bind', file, join('/proc/sys', name));
  }
}

/** The node's network ends at its router, which answers that there is nothing beyond. */
async function network(): Promise<void> {
  mkdirSync('/run/netns');
  for (const command of [
    ['ip', 'link', 'set', 'lo', 'up'],
    ['ip', 'netns', 'add', 'router'],
    ['ip', 'link', 'add', 'node0', 'type', 'veth', 'peer', 'name', 'router0', 'netns', 'router'],
    ['ip', 'address', 'add', `${ADDRESS}/24`, 'dev', 'node0'],
    ['ip', 'link', 'set', 'node0', 'up'],
    ['ip', '-n', 'router', 'address', 'add', `${ROUTER}/24`, 'dev', 'router0'],
    ['ip', '-n', 'router', 'link', 'set', 'router0', 'up'],
    ['ip', 'route', 'add', 'default', 'via', ROUTER],
  ])
    await must(command);
  writeFileSync('/proc/sys/net/ipv4/ip_forward', '1');
  writeFileSync('/etc/hosts', `127.0.0.1 localhost\n${ADDRESS} node\n`);
  await must(['rm', '-f', '/etc/resolv.conf']);
  writeFileSync('/etc/resolv.conf', `nameserver ${ROUTER}\n`);
}
