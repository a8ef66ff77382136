import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { until } from '../harness/index.ts';
import { type Command, type CommandOptions, must } from './command.ts';
import { IMAGES, SOURCES } from './settings.ts';

const KUBELET = '/var/lib/kubelet';
const KUBEADM_MS = 5 * 60_000;
const IMPORT_MS = 5 * 60_000;
const KUBECONFIGS = [
  '--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf',
  '--kubeconfig=/etc/kubernetes/kubelet.conf',
];

/** A program of a node that runs as a unit of systemd would: with a log, and started again if it was told to. */
class Daemon {
  readonly #command: Command;
  readonly #log: number;
  #child: ChildProcess;

  constructor(command: Command, log: string) {
    this.#command = command;
    this.#log = openSync(log, 'a');
    this.#child = this.#start();
  }

  /** Why it is no use to wait for it: it has ended. */
  get ended(): string | undefined {
    const { exitCode, signalCode } = this.#child;
    return exitCode === null && signalCode === null
      ? undefined
      : `${this.#command.join(' ')} ended: ${exitCode ?? signalCode}`;
  }

  /** As `systemctl restart`. */
  async restart(): Promise<void> {
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGTERM');
    await ended;
    this.#child = this.#start();
  }

  #start(): ChildProcess {
    const [program = '', ...args] = this.#command;
    return spawn(program, args, { stdio: ['ignore', this.#log, this.#log] }).on('error', () => {});
  }
}

/** A machine of the cluster, with containerd and a kubelet. */
export class Node {
  readonly name: string;
  readonly #directory: string;
  /** What runs a command there. */
  readonly inside: Command;
  #kubelet: Daemon | undefined;

  /** @param directory where it may write */
  constructor(name: string, directory: string, inside: Command = []) {
    this.name = name;
    this.#directory = directory;
    this.inside = inside;
    mkdirSync(join(directory, 'logs'), { recursive: true });
  }

  /** Runs a command there. */
  must(command: Command, options?: CommandOptions): Promise<string> {
    return must([...this.inside, ...command], options);
  }

  daemon(...command: Command): Daemon {
    return new Daemon([...this.inside, ...command], join(this.#directory, 'logs', `${this.name}-${command[0]}.log`));
  }

  /** The directory that it has at a path as its own. */
  own(path: string): string {
    return join(this.#directory, this.name, path);
  }

  /** Gives it directories of its own. Mounts of pods have to be seen by the kubelet, and the other way. */
  async mountOwn(paths: readonly string[]): Promise<void> {
    const mount = (...args: string[]) => this.must(['mount', ...args]);
    await mount('--make-rshared', '/');
    await mount('-t', 'tmpfs', 'tmpfs', '/run');
    for (const path of paths) {
      await this.must(['mkdir', '-p', this.own(path), path]);
      await mount('--bind', this.own(path), path);
    }
  }

  /** Starts containerd, and gives it the images: the cluster's, and Isthmus'. */
  async containers(isthmus: string): Promise<void> {
    const containerd = this.daemon('containerd');
    const hopeless = () => containerd.ended;
    await until(() => this.must(['ctr', 'version']), { what: `containerd of ${this.name}`, hopeless });
    const load = [...this.inside, 'ctr', '-n', 'k8s.io', 'images', 'import'];
    // One archive, so that what images share is unpacked once.
    await must(['sh', '-c', `tar -C ${IMAGES} -cf - . | ${load.join(' ')} -`], { deadline: IMPORT_MS });
    await must([...load, isthmus], { deadline: IMPORT_MS });
  }

  /**
   * `kubeadm init` or `kubeadm join`, which writes the kubelet's files, and then waits for the kubelet.
   * @param words of its configuration in test/cluster, and what they are replaced by
   */
  async kubeadm(verb: 'init' | 'join', words: Readonly<Record<string, string>>): Promise<void> {
    const config = join(this.#directory, `${verb}.yaml`);
    const text = readFileSync(join(SOURCES, `${verb}.yaml`), 'utf8');
    writeFileSync(
      config,
      text.replaceAll(/\b[A-Z]{4,}\b/g, (word) => words[word] ?? word),
    );
    const made = this.must(['kubeadm', verb, '--config', config], { deadline: KUBEADM_MS });
    await Promise.all([made, this.#startKubelet()]);
  }

  async restartKubelet(): Promise<void> {
    await this.#kubelet?.restart();
  }

  async #startKubelet(): Promise<void> {
    const files: Command = ['cat', `${KUBELET}/config.yaml`, `${KUBELET}/kubeadm-flags.env`];
    const flagsOf = async () => (await this.must(files)).match(/^KUBELET_KUBEADM_ARGS="(.*)"/m);
    const [, flags = ''] = await until(flagsOf, { what: "the kubelet's files", deadline: KUBEADM_MS });
    const own = [...KUBECONFIGS, `--config=${KUBELET}/config.yaml`];
    this.#kubelet = this.daemon('kubelet', ...own, ...flags.split(' ').filter(Boolean));
  }
}
