import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { type Scope, until } from '../harness/index.ts';
import type { Command } from './command.ts';

const KEPT_LINES = 100_000;
/** Longer than a tunnel waits for its way (--resume-timeout, 2 min), and an attach takes (10 s): docs/RESUME.md. */
export const SILENT_MS = 150_000;

/** A command that goes on until its scope ends, and what it has printed. */
export class Session {
  readonly lines: string[] = [];
  readonly #child: ChildProcessWithoutNullStreams;
  #printed = 0;

  constructor(scope: Scope, [program = '', ...args]: Command) {
    this.#child = spawn(program, args);
    this.#child.on('error', () => {});
    this.#child.stdin.on('error', () => {});
    for (const input of [this.#child.stdout, this.#child.stderr])
      createInterface({ input }).on('line', (line) => this.#keep(line));
    scope.defer(() => this.#child.kill('SIGKILL'));
  }

  get ended(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** Returns whether it prints so many more lines. What carried it may be dead, and it not know yet. @throws if it stays silent */
  async goesOn(lines: number): Promise<boolean> {
    const last = this.#printed + lines;
    await until(() => this.ended || this.#printed >= last, {
      what: 'more of a session, or its end',
      deadline: SILENT_MS,
    });
    return !this.ended;
  }

  /** Resolves with its exit status, null if a signal ended it. */
  async code(): Promise<number | null> {
    await until(() => this.ended, { what: 'the end of a session', deadline: SILENT_MS });
    return this.#child.exitCode;
  }

  write(text: string): void {
    this.#child.stdin.write(text);
  }

  /** Returns what the pattern finds in the first line that it matches. */
  async line(pattern: RegExp, deadline = 30_000): Promise<RegExpMatchArray> {
    const found = () => this.lines.map((line) => line.match(pattern)).find((match) => match !== null);
    const hopeless = () => (this.ended ? `it has ended: ${this.lines.slice(-3).join('; ')}` : undefined);
    return until(found, { what: `a line that matches ${pattern}`, deadline, hopeless });
  }

  #keep(line: string): void {
    this.#printed += 1;
    if (this.lines.push(line) > KEPT_LINES) this.lines.shift();
  }
}

/** Does something again and again, until the scope ends. @returns what ends it before */
export function repeat(scope: Scope, work: () => Promise<unknown>): () => Promise<void> {
  let over = false;
  const loop = (async () => {
    while (!over) await work();
  })();
  const stop = () => {
    over = true;
    return loop;
  };
  scope.defer(stop);
  return stop;
}
