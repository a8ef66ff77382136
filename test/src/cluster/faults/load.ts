import { Scope, until } from '../../harness/index.ts';
import { tryKubectl } from '../kubernetes.ts';
import { NAMESPACE } from '../probe.ts';
import { Session } from '../session.ts';

const SESSIONS = 3;
const CALL_MS = 60_000;
/** Prints a line twice a second. */
const COUNTING = 'i=0; while sleep 0.5; do echo $((i+=1)); done';

/** What a load met. */
export interface Figures {
  readonly calls: number;
  readonly failed: number;
  /** The longest call, in milliseconds. */
  readonly longest: number;
  /** How many of the sessions that stay ended before the load did. */
  readonly cut: number;
  /** What kubectl said when the first call failed that should not. */
  readonly reason: string | undefined;
}

/** `kubectl exec` again and again, and three that stay. */
export class Load implements AsyncDisposable {
  readonly #scope = new Scope();
  readonly #pod: string;
  readonly #mayFail: RegExp | undefined;
  readonly #sessions: readonly Session[];
  #calls = 0;
  #failed = 0;
  #longest = 0;
  #reason: string | undefined;
  #over = false;
  readonly #loop: Promise<void>;

  private constructor(pod: string, mayFail: RegExp | undefined) {
    this.#pod = pod;
    this.#mayFail = mayFail;
    const args = ['-n', NAMESPACE, 'exec', pod, '--', 'sh', '-c', COUNTING];
    this.#sessions = Array.from({ length: SESSIONS }, () => new Session(this.#scope, args));
    this.#loop = this.#calling();
  }

  /** Resolves once its sessions stand, and some calls have succeeded. */
  static async begin(pod: string, mayFail?: RegExp): Promise<Load> {
    const load = new Load(pod, mayFail);
    for (const session of load.#sessions) await session.line(/^1$/);
    await load.more(3);
    return load;
  }

  /** Waits for this many more calls. */
  async more(calls: number): Promise<void> {
    const from = this.#calls;
    await until(() => this.#calls >= from + calls, { what: `${calls} calls`, deadline: calls * CALL_MS });
  }

  async end(): Promise<Figures> {
    const cut = this.#sessions.filter((session) => session.ended).length;
    this.#over = true;
    await this.#loop;
    return { calls: this.#calls, failed: this.#failed, longest: this.#longest, cut, reason: this.#reason };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over = true;
    await this.#loop;
    await this.#scope[Symbol.asyncDispose]();
  }

  async #calling(): Promise<void> {
    while (!this.#over) {
      const start = performance.now();
      const { status, stdout, stderr } = await tryKubectl(['-n', NAMESPACE, 'exec', this.#pod, '--', 'echo', 'ok'], {
        deadline: CALL_MS,
      });
      this.#calls += 1;
      this.#longest = Math.max(this.#longest, performance.now() - start);
      if (status === 0 && stdout === 'ok\n') continue;
      this.#failed += 1;
      const reason = stderr.trim().split('\n').at(-1) || `status ${status}`;
      if (!this.#mayFail?.test(reason)) this.#reason ??= reason;
    }
  }
}
