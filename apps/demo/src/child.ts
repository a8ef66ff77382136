import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

const KEPT_LINES = 20;
const POLL_MS = 50;

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
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
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
    if (this.#lines.push(line) > KEPT_LINES) this.#lines.shift();
  }
}
