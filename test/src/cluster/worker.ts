import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Scope, until } from '../harness/index.ts';
import { type Command, type CommandOptions, must, run } from './command.ts';
import { Daemon, importImages, startKubelet } from './kubernetes.ts';
import { SOURCES } from './settings.ts';

/** The worker's address, and that of its way out: the same router, which lets out what goes to the plane. */
export const WORKER = '198.51.100.10';
const WORKER_ROUTER = '198.51.100.1';
/** Of the worker's own: what its programs write. */
const OWN = ['/etc/cni/net.d', '/etc/kubernetes', '/var/lib/containerd', '/var/lib/kubelet', '/var/log'];
/** The network of its pods. */
export const PODS = '10.198.128.0/24';
const JOIN_MS = 3 * 60_000;

interface WorkerOptions {
  /** Where it may write. */
  readonly directory: string;
  /** Of its control groups. */
  readonly group: string;
  /** The archive of Isthmus' image. */
  readonly image: string;
  /** The only address and port that it reaches. */
  readonly plane: { readonly host: string; readonly port: number };
  /** Which of its names lead there. */
  readonly names: readonly string[];
}

/** Another node of the cluster: a machine with its own mounts, network and host name, whose only way out is one address and port. */
export class Worker {
  readonly #directory: string;
  readonly #options: WorkerOptions;
  /** Holds the namespaces. */
  readonly #holder: ChildProcess;

  private constructor(scope: Scope, options: WorkerOptions) {
    this.#options = options;
    this.#directory = join(options.directory, 'worker');
    this.#holder = spawn('unshare', ['--mount', '--net', '--uts', '--ipc', 'sleep', 'infinity'], { stdio: 'ignore' });
    this.#holder.on('error', () => {});
    scope.defer(() => this.#holder.kill('SIGKILL'));
  }

  static async start(scope: Scope, options: WorkerOptions): Promise<Worker> {
    const worker = new Worker(scope, options);
    await worker.#namespaces();
    makeGroup(options.group);
    await worker.#mounts();
    await worker.#network();
    await worker.#containers();
    return worker;
  }

  /** What runs a command there. */
  get inside(): Command {
    return ['nsenter', '-t', `${this.#holder.pid}`, '--mount', '--net', '--uts', '--ipc'];
  }

  /** Runs a command there. */
  must(command: readonly string[], options?: CommandOptions): Promise<string> {
    return must([...this.inside, ...command], options);
  }

  /** What runs a command in the network of one of its pods. */
  async podNetwork(): Promise<Command> {
    const [name] = (await this.must(['ip', 'netns', 'list'])).split(/\s/);
    if (!name) throw new Error('the worker has no pod with a network of its own');
    return [...this.inside, 'ip', 'netns', 'exec', name];
  }

  /** How many packets have tried to pass between the worker and anything but the plane. */
  async strayPackets(): Promise<number> {
    const rules = await must(['ip', 'netns', 'exec', 'router', 'iptables', '-L', '-v', '-x', '-n']);
    const drops = rules.split('\n').filter((line) => line.includes(' DROP '));
    if (drops.length !== 3) throw new Error(`the router has other rules: ${rules}`);
    return drops.reduce((sum, line) => sum + Number(line.trim().split(/\s+/)[0]), 0);
  }

  /** kubeadm join, with the token of `kubeadm token create --print-join-command`. */
  async join(command: string, endpoint: string): Promise<void> {
    const [token, hash] = ['token', 'discovery-token-ca-cert-hash'].map(
      (flag) => command.match(new RegExp(`--${flag} (\\S+)`))?.[1],
    );
    const config = join(this.#directory, 'join.yaml');
    const text = readFileSync(join(SOURCES, 'join.yaml'), 'utf8')
      .replace(/\bENDPOINT$/m, endpoint)
      .replace(/\bTOKEN$/m, `${token}`)
      .replace(/\bHASH$/m, `${hash}`)
      .replace(/\bADDRESS\b/m, WORKER)
      .replace(/\bCGROUP\b/m, groupOf(this.#options.group));
    writeFileSync(config, text);
    const joined = this.must(['kubeadm', 'join', '--config', config], { deadline: JOIN_MS });
    const start = (...args: string[]) => this.#daemon('kubelet', ...args);
    const kubelet = startKubelet(joined, this.#own('/var/lib/kubelet'), start);
    await Promise.all([joined, kubelet]);
  }

  async #namespaces(): Promise<void> {
    const own = () => {
      const { pid, exitCode } = this.#holder;
      if (exitCode !== null) throw new Error(`unshare ended: ${exitCode}`);
      const network = (process: string) => readlinkSync(`/proc/${process}/ns/net`);
      return pid !== undefined && network(`${pid}`) !== network('self');
    };
    await until(own, "the worker's namespaces");
    await this.must(['hostname', 'worker']);
  }

  async #mounts(): Promise<void> {
    const mount = (...args: string[]) => this.must(['mount', ...args]);
    // Mounts of pods have to be seen by the kubelet, and the other way.
    await mount('--make-rshared', '/');
    await mount('-t', 'tmpfs', 'tmpfs', '/run');
    for (const path of OWN) {
      mkdirSync(this.#own(path), { recursive: true });
      await mount('--bind', this.#own(path), path);
    }
    const { plane, names } = this.#options;
    const files = {
      '/etc/hosts': `127.0.0.1 localhost\n${WORKER} worker\n${plane.host} ${names.join(' ')}\n`,
      '/etc/resolv.conf': `nameserver ${WORKER_ROUTER}\n`,
    };
    for (const [path, text] of Object.entries(files)) {
      writeFileSync(this.#own(path), text);
      await mount('--bind', this.#own(path), path);
    }
    const pods = readFileSync(join(SOURCES, 'pods.conflist'), 'utf8');
    const subnet = pods.replace(/(?<="subnet": ")[^"]+/, PODS);
    writeFileSync(join(this.#own('/etc/cni/net.d'), 'pods.conflist'), subnet);
  }

  /** The worker is behind the same router as the other node, which drops and counts what is not for the plane, or from it. */
  async #network(): Promise<void> {
    const { host, port } = this.#options.plane;
    const router = (...args: string[]) => must(['ip', 'netns', 'exec', 'router', ...args]);
    const pid = `${this.#holder.pid}`;
    await must(['mkdir', '-p', '/run/netns']);
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
      await this.must(command);
  }

  async #containers(): Promise<void> {
    const containerd = this.#daemon('containerd');
    await until(async () => {
      containerd.check();
      return (await run([...this.inside, 'ctr', 'version'])).status === 0;
    }, "the worker's containerd");
    await importImages(this.inside, this.#options.image);
  }

  #own(path: string): string {
    return join(this.#directory, path.replaceAll('/', '-').slice(1));
  }

  #daemon(program: string, ...args: string[]): Daemon {
    const log = join(this.#options.directory, 'logs', `worker-${program}.log`);
    return new Daemon([...this.inside, program, ...args], log);
  }
}

function groupOf(group: string): string {
  return `/${group}/worker`;
}

/** A new group has no processors and no memory until it is given some. */
function makeGroup(group: string): void {
  for (const controller of readdirSync('/sys/fs/cgroup'))
    mkdirSync(join('/sys/fs/cgroup', controller, groupOf(group)), { recursive: true });
  for (const file of ['cpuset.cpus', 'cpuset.mems']) {
    const of = (path: string) => join('/sys/fs/cgroup/cpuset', path, file);
    writeFileSync(of(groupOf(group)), readFileSync(of(group)));
  }
}
