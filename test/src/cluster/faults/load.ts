import { Scope, until } from '../../harness/index.ts';
import { tryKubectl } from '../kubernetes.ts';
import { NAMESPACE } from '../probe.ts';
import { type AdmissionFigures, Admissions, type Strike } from './admissions.ts';
import { LongCalls, type LongFigures } from './long-calls.ts';

const CALL_MS = 60_000;

interface Failure {
  /** When it began and failed, on the clock of `performance.now()`. */
  readonly from: number;
  readonly to: number;
  /** When it failed, as logs have it. */
  readonly at: string;
  readonly reason: string;
}

/** Why a call failed that says nothing. */
const SILENT = 'status 0, and no answer';

/** What a load may meet. */
export interface Tolerance {
  /** How calls may fail, because what they call is away. Admissions may then fail too. */
  readonly mayFail?: RegExp;
  /** Whether one call may end without an answer and without an error: the one that is under way when something is killed. */
  readonly oneSilent?: boolean;
  /** Whether long calls may be cut, because what carries them ends. */
  readonly mayCut?: boolean;
  /** Whether admissions may be cut, too, which are under way when something is killed. */
  readonly mayCutAdmissions?: boolean;
}

interface LoadOptions extends Tolerance {
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
  readonly admissions: AdmissionFigures;
  /** The first of what should not have happened: what kubectl said when a call failed, and when; a cut; an admission that failed. */
  readonly reason: string | undefined;
}

/** `kubectl exec` and admissions again and again, and long calls that stay. */
export class Load implements AsyncDisposable {
  readonly #scope = new Scope();
  readonly #pod: string;
  readonly #tolerance: Tolerance;
  readonly #long: LongCalls;
  readonly #admissions = new Admissions();
  #calls = 0;
  readonly #failures: Failure[] = [];
  readonly #strikes: Strike[] = [];
  #longest = 0;
  #over = false;
  readonly #loop: Promise<void>;

  private constructor(pod: string, { apiServers, ...tolerance }: LoadOptions) {
    this.#pod = pod;
    this.#tolerance = tolerance;
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
    const from = performance.now();
    const result = await kill();
    this.#strikes.push([from, performance.now()]);
    return result;
  }

  async end(): Promise<Figures> {
    this.#over = true;
    await this.#loop;
    const long = await this.#long.end();
    const { mayFail, oneSilent, mayCut, mayCutAdmissions } = this.#tolerance;
    const admissions = await this.#admissions.end(mayCutAdmissions ? this.#strikes : []);
    const wasUnderWay = (failure: Failure) =>
      this.#strikes.some(([from, to]) => failure.from <= to && failure.to >= from);
    const failed = this.#failures.filter((failure) => !wasUnderWay(failure));
    const silent = failed.find(({ reason }) => oneSilent && reason === SILENT);
    const first = failed.find((each) => each !== silent && !mayFail?.test(each.reason));
    const cut = long.cut.length > 0 && !mayCut ? `cut: ${long.cut.join(', ')}` : undefined;
    const refused = mayFail ? undefined : admissions.failed[0];
    const reason = first ? `at ${first.at}, ${first.reason}` : (cut ?? refused);
    const underWay = this.#failures.length - failed.length;
    return { calls: this.#calls, failed: failed.length, underWay, longest: this.#longest, long, admissions, reason };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over = true;
    await this.#loop;
    await this.#admissions.end();
    await this.#scope[Symbol.asyncDispose]();
  }

  async #calling(): Promise<void> {
    const args = ['-n', NAMESPACE, 'exec', this.#pod, '--', 'echo', 'ok'];
    for (; !this.#over; this.#calls += 1) {
      const from = performance.now();
      const { status, stdout, stderr } = await tryKubectl(args, { deadline: CALL_MS });
      const to = performance.now();
      this.#longest = Math.max(this.#longest, to - from);
      if (status === 0 && stdout === 'ok\n') continue;
      // kubectl ends with 0 if the connection goes before the answer.
      const reason = stderr.trim().split('\n').at(-1) || (status === 0 ? SILENT : `status ${status}, and no answer`);
      this.#failures.push({ from, to, at: new Date().toISOString(), reason });
    }
  }
}
