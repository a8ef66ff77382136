import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { killChild, type Scope, within } from '../harness/index.ts';

interface ChildOptions {
  readonly argument?: string;
  /** What runs it: a Node, perhaps behind `ip netns exec ...`. */
  readonly command?: readonly string[];
}

/** A process of a rig. It answers messages, and ends when this process does. */
export class Child implements AsyncDisposable {
  readonly #file: string;
  readonly #child: ChildProcess;

  /** @param file below test/src */
  constructor(
    file: string,
    { argument = '', command: [execPath = '', ...execArgv] = [process.execPath] }: ChildOptions = {},
  ) {
    this.#file = file;
    this.#child = fork(new URL(`../${file}`, import.meta.url), [argument], { execPath, execArgv });
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  get running(): boolean {
    return this.#child.connected;
  }

  /** Returns its next message. @param deadline in milliseconds */
  async said<T>(deadline?: number): Promise<T> {
    const over = new AbortController();
    const ended = once(this.#child, 'exit', over).then(([status, signal]) => {
      throw new Error(`${this.#file} ended without an answer (${signal ?? `status ${status}`})`);
    });
    const wait = { ...(deadline && { deadline }), what: `an answer of ${this.#file}` };
    try {
      const [said] = await within(Promise.race([once(this.#child, 'message', over), ended]), wait);
      return said as T;
    } finally {
      over.abort();
    }
  }

  /** Sends it a message, and returns its answer. */
  ask<T>(message: unknown, deadline?: number): Promise<T> {
    const answer = this.said<T>(deadline);
    this.send(message);
    return answer;
  }

  send(message: unknown): void {
    this.#child.send(message as object);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await killChild(this.#child);
  }
}

/** Starts a process that says first at which port it listens. */
export async function listening(scope: Scope, file: string, options: ChildOptions = {}) {
  const child = scope.use(new Child(file, options));
  return { port: await child.said<number>(), pid: child.pid, child };
}

/** Starts a process, sends it one message, returns its one answer, and ends it. */
export async function ask<T>(file: string, message: object, deadline: number): Promise<T> {
  await using child = new Child(file);
  return await child.ask<T>(message, deadline);
}
