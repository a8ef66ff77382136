import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { DEMO } from './defaults.ts';

export interface ChildOptions {
  /** Name in the demo: `gateway-1`. */
  readonly name: string;
  readonly command: readonly string[];
  /** What to print if the program is not installed on this machine. */
  readonly missing?: string;
  /** Whether it does its part. */
  readonly ready?: () => Promise<boolean>;
  /** Called with every line of stdout and stderr. */
  readonly onLine?: (line: string) => void;
}

/** A program of the demo ended or cannot be used. */
export class ChildFailed extends Error {
  override readonly name = 'ChildFailed';
  /** The last lines that the program printed. */
  readonly lastLines: readonly string[];

  constructor(message: string, lastLines: readonly string[]) {
    super(message);
    this.lastLines = lastLines;
  }
}

/** A program that the demo runs. */
export class Child {
  readonly name: string;
  /** Resolves when the process has exited, with how it ended. Never rejects. */
  readonly gone: Promise<string>;
  readonly #process: ChildProcess;
  readonly #lines: string[] = [];
  #running = true;

  constructor({ name, command: [program = '', ...args], missing, onLine }: ChildOptions) {
    this.name = name;
    // Runs in its own process group: Ctrl-C in a terminal goes to the demo, which ends its programs in order.
    this.#process = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], detached: true });
    for (const stream of [this.#process.stdout, this.#process.stderr]) {
      if (stream === null) continue;
      createInterface({ input: stream }).on('line', (line) => {
        this.#keep(line);
        onLine?.(line);
      });
    }
    this.gone = new Promise<string>((resolve) => {
      this.#process.once('error', (error: NodeJS.ErrnoException) => {
        resolve(error.code === 'ENOENT' && missing ? missing : `could not be started: ${error.message}`);
      });
      this.#process.once('close', (code, signal) => {
        resolve(signal ? `was ended by ${signal}` : `ended with status ${code}`);
      });
    }).finally(() => {
      this.#running = false;
    });
  }

  /** 0 if it could not be started. */
  get pid(): number {
    return this.#process.pid ?? 0;
  }

  get running(): boolean {
    return this.#running;
  }

  failure(how: string): ChildFailed {
    return new ChildFailed(`${this.name} ${how}`, this.#lines);
  }

  /** Waits until `ready` returns true. @throws ChildFailed if that takes longer than `ms`, or if the program ended */
  async until(ready: () => Promise<boolean>, ms: number): Promise<void> {
    const deadline = performance.now() + ms;
    while (!(await ready().catch(() => false))) {
      if (!this.#running) throw this.failure(await this.gone);
      if (performance.now() > deadline) throw this.failure(`was not ready after ${ms / 1000} s`);
      await new Promise((resolve) => setTimeout(resolve, DEMO.pollMs));
    }
  }

  /** Asks the program to drain and exit, and kills it after `ms`. Resolves to whether it exited by itself. */
  async stop(ms: number): Promise<boolean> {
    if (!this.#running) return true;
    let late = false;
    this.#signal('SIGTERM');
    const timer = setTimeout(() => {
      late = true;
      this.kill();
    }, ms);
    await this.gone;
    clearTimeout(timer);
    return !late;
  }

  kill(): void {
    this.#signal('SIGKILL');
  }

  /** Uses process.kill: on Deno, ChildProcess ignores a second `kill()` and reports a wrong exit status. */
  #signal(signal: NodeJS.Signals): void {
    const { pid } = this.#process;
    if (!this.#running || pid === undefined) return;
    try {
      process.kill(pid, signal);
    } catch {
      // It ended a moment ago, and its last output is still on its way.
    }
  }

  #keep(line: string): void {
    if (this.#lines.push(line) > DEMO.linesKept) this.#lines.shift();
  }
}

const MINUTE_MS = 60_000;

/** What becomes of programs that end without being asked to. */
interface Revival {
  /** One ended, and is about to be started again. */
  died(failure: ChildFailed): void;
  /** It is ready again, as another process. */
  back(child: Child): void;
}

/** All programs of a demo, in tiers that end one after the other. */
export class Fleet {
  /** Rejects with a ChildFailed when a program ends without being asked to, and is not started again. */
  readonly death: Promise<never>;
  readonly #tiers: Child[][];
  #reportDeath: (failure: ChildFailed) => void = () => {};
  #ending = false;
  #revival: Revival | undefined;
  /** When programs ended, by name. */
  readonly #deaths = new Map<string, number[]>();

  /** Children must not outlive the demo, however it ends. */
  readonly #killAll = () => this.kill();

  constructor(tiers: number) {
    this.#tiers = Array.from({ length: tiers }, () => []);
    this.death = new Promise((_, reject) => {
      this.#reportDeath = reject;
    });
    this.death.catch(() => {});
    process.once('exit', this.#killAll);
  }

  /** @param tier when it ends: the lowest tier ends first */
  start(tier: number, options: ChildOptions): Child {
    const child = new Child(options);
    (this.#tiers[tier] as Child[]).push(child);
    if (this.#ending) child.kill();
    child.gone.then((how) => this.#ended(tier, options, child.failure(how)));
    return child;
  }

  /** From now on, programs that end are started again. Before, the end of one is that of the demo: its flags may be wrong. */
  revive(revival: Revival): void {
    this.#revival = revival;
  }

  #ended(tier: number, options: ChildOptions, failure: ChildFailed): void {
    if (this.#ending) return;
    const now = performance.now();
    const deaths = [...(this.#deaths.get(options.name) ?? []), now].filter((at) => now - at < MINUTE_MS);
    this.#deaths.set(options.name, deaths);
    if (!this.#revival || deaths.length >= DEMO.deathsPerMinute) {
      this.#reportDeath(failure);
      return;
    }
    const { died, back } = this.#revival;
    died(failure);
    const children = this.#tiers[tier] as Child[];
    children.splice(0, children.length, ...children.filter(({ name }) => name !== options.name));
    const child = this.start(tier, options);
    const ready = options.ready ?? (() => Promise.resolve(true));
    // If it ends before it is ready, that counts as another death. If it never gets ready, the demo ends.
    child.until(ready, DEMO.readyMs).then(
      () => this.#ending || back(child),
      (late: ChildFailed) => child.running && !this.#ending && this.#reportDeath(late),
    );
  }

  /** Drains all programs, tier by tier. Resolves to a failure for each that was killed after `ms`. */
  async stop(ms: number): Promise<readonly ChildFailed[]> {
    this.#ending = true;
    const failures: ChildFailed[] = [];
    for (const tier of this.#tiers) {
      const ends = tier.map(async (child) => {
        if (!(await child.stop(ms))) failures.push(child.failure(`did not end within ${ms / 1000} s and was killed`));
      });
      await Promise.all(ends);
    }
    process.removeListener('exit', this.#killAll);
    return failures;
  }

  kill(): void {
    this.#ending = true;
    for (const child of this.#tiers.flat()) child.kill();
  }
}
