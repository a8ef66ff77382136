import { Scope, until } from '../../harness/index.ts';
import { tryKubectl } from '../kubernetes.ts';
import { NAMESPACE } from '../probe.ts';
import { LongCalls, type LongFigures } from './long-calls.ts';

const CALL_MS = 60_000;

interface Failure {
  /** Its number, from 0. */
  readonly call: number;
  /** When it failed, as logs have it. */
  readonly at: string;
  readonly reason: string;
}

/** Why a call failed that says nothing. */
const SILENT = 'status 0, and no answer';

interface LoadOptions {
  /** How calls may fail. */
  readonly mayFail?: RegExp | undefined;
  /** See `Fault`. */
  readonly oneSilent?: boolean | undefined;
  /** Where the execs that stay are, one after the other. Default: where kubectl finds an API server, as the calls do. */
  readonly apiServers?: readonly string[] | undefined;
}

/** What a load met. */
export interface Figures {
  readonly calls: number;
  readonly failed: number;
  /** Calls that failed because what carried them was killed. They are not among the failed. */
  readonly underWay: number;
  /** The longest call, in milliseconds. */
  readonly longest: number;
  readonly long: LongFigures;
  /** What kubectl said when the first call failed that should not, and when. */
  readonly reason: string | undefined;
}

/** `kubectl exec` again and again, and long calls that stay. */
export class Load implements AsyncDisposable {
  readonly #scope = new Scope();
  readonly #pod: string;
  readonly #mayFail: RegExp | undefined;
  readonly #oneSilent: boolean;
  readonly #long: LongCalls;
  #calls = 0;
  readonly #failures: Failure[] = [];
  /** The calls that were under way when things were killed. */
  readonly #struck: (readonly [first: number, last: number])[] = [];
  #longest = 0;
  #over = false;
  readonly #loop: Promise<void>;

  private constructor(pod: string, { mayFail, oneSilent = false, apiServers }: LoadOptions) {
    this.#pod = pod;
    this.#mayFail = mayFail;
    this.#oneSilent = oneSilent;
    this.#long = new LongCalls(this.#scope, pod, apiServers);
    this.#loop = this.#calling();
  }

  /** Resolves once its long calls stand, and some calls have succeeded. */
  static async begin(pod: string, options: LoadOptions): Promise<Load> {
    const load = new Load(pod, options);
    await load.#long.begun();
    await load.more(3);
    return load;
  }

  /** Waits for this many more calls. */
  async more(calls: number): Promise<void> {
    const from = this.#calls;
    await until(() => this.#calls >= from + calls, { what: `${calls} calls`, deadline: calls * CALL_MS });
  }

  /** Kills something, which takes the calls with it that it carries. */
  async strike<T>(kill: () => Promise<T>): Promise<T> {
    const first = this.#calls;
    const result = await kill();
    this.#struck.push([first, this.#calls]);
    return result;
  }

  async end(): Promise<Figures> {
    this.#over = true;
    await this.#loop;
    const long = await this.#long.end();
    const underWayOf = ({ call }: Failure) => this.#struck.some(([first, last]) => call >= first && call <= last);
    const failed = this.#failures.filter((failure) => !underWayOf(failure));
    const silent = failed.find(({ reason }) => this.#oneSilent && reason === SILENT);
    const first = failed.find((each) => each !== silent && !this.#mayFail?.test(each.reason));
    const reason = first && `at ${first.at}, ${first.reason}`;
    const underWay = this.#failures.length - failed.length;
    return { calls: this.#calls, failed: failed.length, underWay, longest: this.#longest, long, reason };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over = true;
    await this.#loop;
    await this.#scope[Symbol.asyncDispose]();
  }

  async #calling(): Promise<void> {
    const args = ['-n', NAMESPACE, 'exec', this.#pod, '--', 'echo', 'ok'];
    for (; !this.#over; this.#calls += 1) {
      const start = performance.now();
      const { status, stdout, stderr } = await tryKubectl(args, { deadline: CALL_MS });
      this.#longest = Math.max(this.#longest, performance.now() - start);
      if (status === 0 && stdout === 'ok\n') continue;
      // kubectl ends with 0 if the connection goes before the answer.
      const reason = stderr.trim().split('\n').at(-1) || (status === 0 ? SILENT : `status ${status}, and no answer`);
      this.#failures.push({ call: this.#calls, at: new Date().toISOString(), reason });
    }
  }
}
