import { spawn } from 'node:child_process';
import { readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { until } from '../harness/index.ts';
import { type Command, must } from './command.ts';
import { Node } from './node.ts';
import { SOURCES } from './settings.ts';
import type { Ground } from './step.ts';

/** The worker's address, and that of its way out: the same router, which lets out what goes to the plane. */
export const WORKER = '198.51.100.10';
const WORKER_ROUTER = '198.51.100.1';
/** Of the worker's own: what its programs write. */
const OWN = ['/etc/cni/net.d', '/etc/kubernetes', '/var/lib/containerd', '/var/lib/kubelet', '/var/log'];
/** The network of its pods. */
export const PODS = '10.198.128.0/24';

/** The only address and port that the worker reaches, and which of its names lead there. */
interface Reached {
  readonly host: string;
  readonly port: number;
  readonly names: readonly string[];
}

/** Another node of the cluster: a machine with its own mounts, network and host name, whose only way out is one address and port. */
export async function startWorker({ scope, directory, image }: Ground, plane: Reached): Promise<Node> {
  const namespaces = ['--mount', '--net', '--uts', '--ipc'];
  const holder = spawn('unshare', [...namespaces, 'sleep', 'infinity'], { stdio: 'ignore' });
  holder.on('error', () => {});
  scope.defer(() => holder.kill('SIGKILL'));
  const network = (pid: string) => readlinkSync(`/proc/${pid}/ns/net`);
  await until(() => network(`${holder.pid}`) !== network('self'), "the worker's namespaces");
  const worker = new Node('worker', directory, ['nsenter', '-t', `${holder.pid}`, ...namespaces]);
  await worker.must(['hostname', worker.name]);
  await mounts(worker, plane);
  await connect(worker, `${holder.pid}`, plane);
  await worker.containers(image);
  return worker;
}

/** kubeadm join, with the command of `kubeadm token create --print-join-command`. */
export function joinCluster(worker: Node, group: string, command: string, ENDPOINT: string): Promise<void> {
  const flag = (name: string) => command.match(new RegExp(`--${name} (\\S+)`))?.[1] ?? '';
  const [TOKEN, HASH] = [flag('token'), flag('discovery-token-ca-cert-hash')];
  return worker.kubeadm('join', { ENDPOINT, TOKEN, HASH, ADDRESS: WORKER, CGROUP: `/${group}/worker` });
}

/** What runs a command in the network of one of its pods. */
export async function podNetwork(worker: Node): Promise<Command> {
  const [name] = (await worker.must(['ip', 'netns', 'list'])).split(/\s/);
  if (!name) throw new Error('the worker has no pod with a network of its own');
  return [...worker.inside, 'ip', 'netns', 'exec', name];
}

/** How many packets have tried to pass between the worker and anything but the plane. */
export async function strayPackets(): Promise<number> {
  const rules = await router('iptables', '-L', '-v', '-x', '-n');
  const drops = rules.split('\n').filter((line) => line.includes(' DROP '));
  if (drops.length !== 3) throw new Error(`the router has other rules: ${rules}`);
  return drops.reduce((sum, line) => sum + Number(line.trim().split(/\s+/)[0]), 0);
}

async function mounts(worker: Node, { host, names }: Reached): Promise<void> {
  await worker.mountOwn(OWN);
  const files = {
    '/etc/hosts': `127.0.0.1 localhost\n${WORKER} worker\n${host} ${names.join(' ')}\n`,
    '/etc/resolv.conf': `nameserver ${WORKER_ROUTER}\n`,
  };
  for (const [path, text] of Object.entries(files)) {
    writeFileSync(worker.own(path), text);
    await worker.must(['mount', '--bind', worker.own(path), path]);
  }
  const pods = readFileSync(join(SOURCES, 'pods.conflist'), 'utf8');
  const subnet = pods.replace(/(?<="subnet": ")[^"]+/, PODS);
  writeFileSync(worker.own('/etc/cni/net.d/pods.conflist'), subnet);
}

function router(...command: Command): Promise<string> {
  return must(['ip', 'netns', 'exec', 'router', ...command]);
}

/** The worker is behind the same router as the other node, which drops and counts what is not for the plane, or from it. */
async function connect(worker: Node, pid: string, { host, port }: Reached): Promise<void> {
  await router('ip', 'link', 'add', 'worker0', 'type', 'veth', 'peer', 'name', 'out0', 'netns', pid);
  await router('ip', 'address', 'add', `${WORKER_ROUTER}/24`, 'dev', 'worker0');
  await router('ip', 'link', 'set', 'worker0', 'up');
  await router('sysctl', '-qw', 'net.ipv4.ip_forward=1');
  const plane = ['-p', 'tcp', '-d', host, '--dport', `${port}`];
  const answers = ['-p', 'tcp', '-s', host, '--sport', `${port}`];
  for (const rule of [
    ['FORWARD', '-i', 'worker0', ...plane, '-j', 'ACCEPT'],
    ['FORWARD', '-o', 'worker0', ...answers, '-j', 'ACCEPT'],
    ['FORWARD', '-i', 'worker0', '-j', 'DROP'],
    ['FORWARD', '-o', 'worker0', '-j', 'DROP'],
    ['INPUT', '-i', 'worker0', '-j', 'DROP'],
  ])
    await router('iptables', '-A', ...rule);
  for (const command of [
    ['ip', 'link', 'set', 'lo', 'up'],
    ['ip', 'address', 'add', `${WORKER}/24`, 'dev', 'out0'],
    ['ip', 'link', 'set', 'out0', 'up'],
    ['ip', 'route', 'add', 'default', 'via', WORKER_ROUTER],
    ['sysctl', '-qw', 'net.ipv4.ip_forward=1'],
    // k8s/recipes/one-address makes a dummy interface where there is none of this name. Not every kernel has those.
    ['ip', 'link', 'add', 'api0', 'type', 'bridge'],
    ['mkdir', '-p', '/run/netns'],
  ])
    await worker.must(command);
}
