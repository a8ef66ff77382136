import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, globSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { until } from '../harness/index.ts';
import { type Command, type CommandOptions, type Ended, must, run } from './command.ts';
import { BIN, IMAGES, SOURCES, VERSION } from './settings.ts';
import { manifestOf, removePod, writeManifest } from './static-pods.ts';

const KUBELET = '/var/lib/kubelet';
const INIT_MS = 5 * 60_000;
const NEXT_MS = 3 * 60_000;
const IMPORT_MS = 5 * 60_000;

/** kubectl as the cluster's administrator. */
export function kubectlArgs(args: readonly string[]): readonly [string, ...string[]] {
  return ['kubectl', '--kubeconfig=/etc/kubernetes/admin.conf', ...args];
}

/** Returns what kubectl prints. @throws if it fails */
export function kubectl(args: readonly string[], options?: CommandOptions): Promise<string> {
  return must(kubectlArgs(args), options);
}

/** Runs kubectl, which may fail. */
export function tryKubectl(args: readonly string[], options?: CommandOptions): Promise<Ended> {
  return run(kubectlArgs(args), options);
}

/** Returns the names of the objects that a label selects. */
export async function namesOf(namespace: string, kind: string, selector: string): Promise<string[]> {
  const all = await kubectl(['-n', namespace, 'get', kind, '-l', selector, '-o=jsonpath={.items[*].metadata.name}']);
  return all.split(' ').filter(Boolean);
}

export async function apply(text: string): Promise<void> {
  await kubectl(['apply', '-f', '-'], { input: text });
}

/** A program of a node that runs as a unit of systemd would: with a log, and started again if it was told to. */
export class Daemon {
  readonly #command: Command;
  readonly #log: number;
  #child: ChildProcess;

  constructor(command: Command, log: string) {
    mkdirSync(dirname(log), { recursive: true });
    this.#command = command;
    this.#log = openSync(log, 'a');
    this.#child = this.#start();
  }

  /** Throws why it is no use to wait for it: it has ended. */
  check(): void {
    const { exitCode, signalCode } = this.#child;
    if (exitCode !== null || signalCode !== null)
      throw new Error(`${this.#command[0]} ended: ${exitCode ?? signalCode}`);
  }

  /** As `systemctl restart`. */
  async restart(): Promise<void> {
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGTERM');
    await ended;
    this.#child = this.#start();
  }

  #start(): ChildProcess {
    const [program, ...args] = this.#command;
    return spawn(program, args, { stdio: ['ignore', this.#log, this.#log] }).on('error', () => {});
  }
}

/** The programs of the node, and the cluster that kubeadm makes with them. */
export class Kubernetes {
  readonly #logs: string;
  readonly #group: string;
  #kubelet: Daemon | undefined;

  constructor(directory: string, group: string) {
    this.#logs = join(directory, 'logs');
    this.#group = group;
    process.env.PATH = `${BIN}:${process.env.PATH}`;
    process.env.HOME = directory;
  }

  /** Starts containerd, and gives it the images: the cluster's, and Isthmus'. */
  async containers(isthmus: string): Promise<void> {
    const containerd = this.#daemon('containerd');
    await until(async () => {
      containerd.check();
      return (await run(['ctr', 'version'])).status === 0;
    }, 'containerd');
    await importImages([], isthmus);
  }

  /** etcd beside the cluster, and the first of kubeadm's steps: the authority that Isthmus' certificate needs. */
  async authority(): Promise<void> {
    const urls = ['listen', 'advertise'].map((what) => `--${what}-client-urls=http://127.0.0.1:2379`);
    this.#daemon('etcd', '--data-dir=/var/lib/etcd', '--unsafe-no-fsync', ...urls);
    await must(['kubeadm', 'init', 'phase', 'certs', 'ca']);
  }

  /** kubeadm init, with the patches that are in /etc/kubernetes/patches. */
  async init(): Promise<void> {
    const config = readFileSync(join(SOURCES, 'kubeadm.yaml'), 'utf8')
      .replace(/\bVERSION$/m, VERSION)
      .replace(/\bCGROUP$/m, `/${this.#group}`);
    writeFileSync('/etc/kubernetes/kubeadm.yaml', config);
    const init = must(['kubeadm', 'init', '--config=/etc/kubernetes/kubeadm.yaml', '--skip-token-print'], {
      deadline: INIT_MS,
    });
    const start = async () => {
      this.#kubelet = await startKubelet(init, KUBELET, (...args) => this.#daemon('kubelet', ...args));
    };
    await Promise.all([init, start()]);
  }

  async restartKubelet(): Promise<void> {
    await this.#kubelet?.restart();
  }

  /** Has the kubelet start the API server again, which reads its files only then, and waits for the new one. */
  async restartApiServer(): Promise<void> {
    // SIGTERM would take a minute: it waits for watches to end.
    const before = await killStatic('kube-apiserver');
    await nextStatic('kube-apiserver', before);
    await until(async () => (await tryKubectl(['get', '--raw', '/readyz'])).status === 0, 'the API server');
  }

  /**
   * The same by another static pod, as an operator's change makes one. A container that ends three times in a row is held back, and while the API
   * server is away for that long, its controllers take the node for dead, and all pods for not ready.
   * @param change what it changes in the manifest
   */
  async replaceApiServer(change = (manifest: string) => manifest): Promise<void> {
    // Asked first: the kubelet ends the API server as soon as it sees another manifest.
    const [before, path] = [await containerOf('kube-apiserver'), manifestOf('kube-apiserver')];
    writeManifest(path, restarted(change(readFileSync(path, 'utf8'))));
    // The kubelet has begun to end the old one, and would not start it again.
    await sleep(2000);
    await kill(before);
    await nextStatic('kube-apiserver', before);
    await until(async () => (await tryKubectl(['get', '--raw', '/readyz'])).status === 0, 'the API server');
  }

  #daemon(program: string, ...args: string[]): Daemon {
    return new Daemon([program, ...args], join(this.#logs, `${program}.log`));
  }
}

/** Gives containerd the images: the cluster's, and Isthmus'. @param inside what runs a command on its node */
export async function importImages(inside: readonly string[], isthmus: string): Promise<void> {
  const [program = '', ...args] = [...inside, 'ctr', '-n', 'k8s.io', 'images', 'import'];
  // One archive, so that what images share is unpacked once.
  await must(['sh', '-c', `tar -C ${IMAGES} -cf - . | ${[program, ...args].join(' ')} -`], { deadline: IMPORT_MS });
  await must([program, ...args, isthmus], { deadline: IMPORT_MS });
}

/**
 * Starts a node's kubelet. kubeadm writes its files, and then waits for it.
 * @param making fails if kubeadm does
 * @param directory the node's /var/lib/kubelet
 */
export async function startKubelet(
  making: Promise<unknown>,
  directory: string,
  start: (...args: string[]) => Daemon,
): Promise<Daemon> {
  const failed = making.then(() => new Promise<never>(() => {}));
  const flagsFile = join(directory, 'kubeadm-flags.env');
  const written = () =>
    existsSync(join(directory, 'config.yaml')) &&
    existsSync(flagsFile) &&
    readFileSync(flagsFile, 'utf8').match(/="(.*)"/);
  const flags = await Promise.race([failed, until(written, { what: "the kubelet's files", deadline: INIT_MS })]);
  const configs = [
    'bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf',
    'kubeconfig=/etc/kubernetes/kubelet.conf',
    `config=${KUBELET}/config.yaml`,
  ];
  const extra = (flags[1] ?? '').split(' ').filter(Boolean);
  return start(...configs.map((flag) => `--${flag}`), ...extra);
}

/** Kills a static pod's container with SIGKILL. @returns its id */
export async function killStatic(name: string): Promise<string> {
  const id = await containerOf(name);
  await kill(id);
  return id;
}

/** Ends a static pod at once, and waits until it is gone. By SIGTERM, one that holds a socket would wait for its tunnels, for a minute. */
export async function endStatic(name: string): Promise<void> {
  removePod(name);
  const gone = async () => {
    const { status, stdout } = await tryKubectl([...ofPod(name), '--ignore-not-found', containerField('containerID')]);
    if (stdout) await kill(stdout);
    return status === 0 && (await tryKubectl([...ofPod(name), '--ignore-not-found', '-o=name'])).stdout === '';
  };
  await until(gone, { what: `the end of ${name}`, deadline: NEXT_MS });
}

/** Returns the kubelet's own name of a static pod, which differs for each manifest. */
export function uidOf(name: string): Promise<string> {
  return kubectl([...ofPod(name), '-o=jsonpath={.metadata.annotations.kubernetes\\.io/config\\.hash}']);
}

/**
 * Waits until the kubelet is done with a static pod whose manifest is gone. It then starts another of its name at once, and before that looks only
 * every 10 to 15 s whether it may. The pod's control group is the last that it removes, a moment after the API server's object at times.
 */
export async function doneStatic(uid: string): Promise<void> {
  const gone = () => globSync(`/sys/fs/cgroup/cpu/*/kubepods/**/pod${uid}`).length === 0;
  await until(gone, { what: `the end of the static pod ${uid}`, deadline: NEXT_MS });
}

/** Kills a container with SIGKILL, which may have ended already. */
export async function kill(id: string): Promise<void> {
  const { stderr } = await run([
    'ctr',
    '-n',
    'k8s.io',
    'tasks',
    'kill',
    '--signal',
    'SIGKILL',
    id.replace(/^.*\//, ''),
  ]);
  if (stderr && !/not found/.test(stderr)) throw new Error(`${id} is not killed: ${stderr}`);
}

/** Waits until a static pod is ready, and its container another one than this. */
export async function nextStatic(name: string, before: string): Promise<void> {
  const next = async () => {
    const id = await containerOf(name);
    return id !== '' && id !== before && (await ofStatic(name, 'ready')) === 'true';
  };
  await until(next, { what: `another ${name}`, deadline: NEXT_MS });
}

export function containerOf(name: string): Promise<string> {
  return ofStatic(name, 'containerID');
}

function ofStatic(name: string, field: string): Promise<string> {
  return kubectl([...ofPod(name), containerField(field)]);
}

const ofPod = (name: string) => ['-n', 'kube-system', 'get', 'pod', `${name}-node`];
const containerField = (field: string) => `-o=jsonpath={.status.containerStatuses[0].${field}}`;

/** A static pod is another one when its manifest changes. */
export function restarted(manifest: string): string {
  const line = `    isthmus.test/restarted: "${Date.now()}"\n`;
  const without = manifest.replace(/^ {4}isthmus\.test\/restarted: .*\n/m, '');
  if (/^ {2}annotations:\n/m.test(without)) return without.replace(/^ {2}annotations:\n/m, (all) => `${all}${line}`);
  return without.replace(/^metadata:\n/m, (all) => `${all}  annotations:\n${line}`);
}
