import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

const KEPT_LINES = 20;
const POLL_MS = 50;

export interface ChildOptions {
  /** As the demo calls it: `gateway-1`. */
  readonly name: string;
  readonly command: readonly string[];
  /** What to say when there is no such program on this machine. */
  readonly missing?: string;
  /** Sees every line of stdout and stderr. */
  readonly onLine?: (line: string) => void;
}

/** A program of the demo ended or is of no use. */
export class ChildFailed extends Error {
  override readonly name = 'ChildFailed';
  /** What the program said last. */
  readonly lastLines: readonly string[];

  constructor(message: string, lastLines: readonly string[]) {
    super(message);
    this.lastLines = lastLines;
  }
}

/** A program that the demo runs. */
export class Child {
  readonly name: string;
  /** Resolves when the process is gone, with how it ended; never rejects. */
  readonly gone: Promise<string>;
  readonly #process: ChildProcess;
  readonly #lines: string[] = [];
  #running = true;

  constructor({ name, command: [program = '', ...args], missing, onLine }: ChildOptions) {
    this.name = name;
    // In a process group of its own: Ctrl-C in a terminal goes to the demo, which ends its programs in order.
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

  /** 0 when it could not be started. */
  get pid(): number {
    return this.#process.pid ?? 0;
  }

  failure(how: string): ChildFailed {
    return new ChildFailed(`${this.name} ${how}`, this.#lines);
  }

  /** Waits until `ready` says yes. @throws ChildFailed when that takes longer than `ms`, or when the program ended. */
  async until(ready: () => Promise<boolean>, ms: number): Promise<void> {
    const deadline = performance.now() + ms;
    while (!(await ready().catch(() => false))) {
      if (!this.#running) throw this.failure(await this.gone);
      if (performance.now() > deadline) throw this.failure(`was not ready after ${ms / 1000} s`);
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }

  /** Asks it to drain and end, and kills it when it has not within `ms`. Resolves with whether it ended by itself. */
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

  /** By process.kill: after one `kill()` of its own, Deno's ChildProcess takes no second and makes up the exit status. */
  #signal(signal: NodeJS.Signals): void {
    const { pid } = this.#process;
    if (!this.#running || pid === undefined) return;
    try {
      process.kill(pid, signal);
    } catch {
      // It ended a moment ago, and its last words are still on their way.
    }
  }

  #keep(line: string): void {
    if (this.#lines.push(line) > KEPT_LINES) this.#lines.shift();
  }
}
