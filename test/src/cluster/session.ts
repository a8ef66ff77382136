import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { type Scope, until } from '../harness/index.ts';
import { kubectlArgs } from './kubernetes.ts';

const KEPT_LINES = 20_000;

/** A kubectl that goes on until its scope ends, and what it has printed. */
export class Session {
  readonly lines: string[] = [];
  readonly #child: ChildProcess;

  constructor(scope: Scope, args: readonly string[]) {
    const [program, ...rest] = kubectlArgs(args);
    this.#child = spawn(program, rest, { stdio: ['pipe', 'pipe', 'pipe'] });
    this.#child.on('error', () => {});
    this.#child.stdin?.on('error', () => {});
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      if (stream) createInterface({ input: stream }).on('line', (line) => this.#keep(line));
    }
    scope.defer(() => this.#child.kill('SIGKILL'));
  }

  get ended(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  write(text: string): void {
    this.#child.stdin?.write(text);
  }

  /** Returns what the pattern finds in the first line that it matches. */
  async line(pattern: RegExp, deadline = 30_000): Promise<RegExpMatchArray> {
    const found = () => this.lines.map((line) => line.match(pattern)).find((match) => match !== null);
    const hopeless = () => (this.ended ? `kubectl has ended: ${this.lines.slice(-3).join('; ')}` : undefined);
    return until(found, { what: `a line that matches ${pattern}`, deadline, hopeless });
  }

  #keep(line: string): void {
    if (this.lines.push(line) > KEPT_LINES) this.lines.shift();
  }
}
