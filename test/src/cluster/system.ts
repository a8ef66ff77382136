import { copyFileSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Command, must } from './command.ts';
import { ADDRESS, ROUTER, SOURCES } from './settings.ts';

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

/** Prepares the namespaces that this process runs in, so that what the node writes stays below a directory. */
export async function prepareSystem(directory: string, group: string): Promise<void> {
  for (const controller of readdirSync('/sys/fs/cgroup'))
    writeFileSync(join('/sys/fs/cgroup', controller, group, 'system/cgroup.procs'), String(process.pid));
  await must(['hostname', 'node']);
  await mounts(directory);
  await network();
  mkdirSync('/etc/cni/net.d', { recursive: true });
  mkdirSync('/etc/containerd', { recursive: true });
  copyFileSync(join(SOURCES, 'pods.conflist'), '/etc/cni/net.d/pods.conflist');
  copyFileSync(join(SOURCES, 'containerd.toml'), '/etc/containerd/config.toml');
}

async function mounts(directory: string): Promise<void> {
  const mount = (...args: string[]) => must(['mount', ...args]);
  // Mounts of pods have to be seen by the kubelet, and the other way.
  await mount('--make-rshared', '/');
  for (const path of WRITTEN.filter((each) => !directory.startsWith(`${each}/`))) {
    const upper = join(directory, 'changed', path);
    const work = join(directory, 'work', path);
    for (const each of [upper, work]) mkdirSync(each, { recursive: true });
    await mount('-t', 'overlay', 'overlay', '-o', `lowerdir=${path},upperdir=${upper},workdir=${work}`, path);
  }
  await mount('-t', 'tmpfs', 'tmpfs', '/run');
  for (const path of OWN) {
    const own = join(directory, 'own', path);
    for (const each of [own, path]) mkdirSync(each, { recursive: true });
    await mount('--bind', own, path);
  }
  for (const [name, value] of Object.entries(KERNEL)) {
    const file = join(directory, name.replaceAll('/', '.'));
    writeFileSync(file, `${value}\n`);
    await mount('--bind', file, join('/proc/sys', name));
  }
}

/** The node's network ends at its router, which answers that there is nothing beyond. */
async function network(): Promise<void> {
  mkdirSync('/run/netns');
  const commands: Command[] = [
    ['ip', 'link', 'set', 'lo', 'up'],
    ['ip', 'netns', 'add', 'router'],
    ['ip', 'link', 'add', 'node0', 'type', 'veth', 'peer', 'name', 'router0', 'netns', 'router'],
    ['ip', 'address', 'add', `${ADDRESS}/24`, 'dev', 'node0'],
    ['ip', 'link', 'set', 'node0', 'up'],
    ['ip', '-n', 'router', 'address', 'add', `${ROUTER}/24`, 'dev', 'router0'],
    ['ip', '-n', 'router', 'link', 'set', 'router0', 'up'],
    ['ip', 'route', 'add', 'default', 'via', ROUTER],
  ];
  for (const command of commands) await must(command);
  writeFileSync('/proc/sys/net/ipv4/ip_forward', '1');
  writeFileSync('/etc/hosts', `127.0.0.1 localhost\n${ADDRESS} node\n`);
  await must(['rm', '-f', '/etc/resolv.conf']);
  writeFileSync('/etc/resolv.conf', `nameserver ${ROUTER}\n`);
}
