import { echo } from '../harness/destination.ts';
import type { Scope } from '../harness/scope.ts';
import { answered } from '../rig/dial.ts';
import type { Door } from '../rig/door.ts';
import { quantile } from '../rig/figures.ts';
import { AtRate } from '../rig/load/at-rate.ts';

/** Each dial leaves a port in TIME_WAIT for a minute. Every address has its own 28,000 ports. */
const ADDRESSES = 16;

/** How long a dial may take, in milliseconds; the gateway's own limit is lower. */
const DIAL_DEADLINE = 35_000;

/** What is dialled. It accepts, and ends when the other side does. */
export interface Target {
  /** The next address to dial, `host:port`. */
  next(): string;
}

export async function target(scope: Scope): Promise<Target> {
  const { port } = await echo(scope, { host: '0.0.0.0' });
  let dials = 0;
  return { next: () => `127.0.0.${1 + (dials++ % ADDRESSES)}:${port}` };
}

/** The results of dials. */
export class DialResults {
  readonly latencies: number[] = [];
  readonly failures: string[] = [];

  get tried(): number {
    return this.latencies.length + this.failures.length;
  }

  /** Latency in milliseconds, of the dials that succeeded. */
  quantile(q: number): number {
    return this.latencies.length === 0 ? Number.NaN : quantile(this.latencies, q);
  }
}

export interface Callers {
  /** Used in turn. */
  readonly gateways: readonly Door[];
  readonly target: Target;
}

/** Dials with `count` callers until `over`. Each dials again as soon as its last dial is over. */
export async function dialAsFast(
  callers: Callers,
  count: number,
  over: (results: DialResults) => boolean,
): Promise<DialResults> {
  const results = new DialResults();
  const caller = async (index: number) => {
    for (let n = index; !over(results); n++) await dialOnce(callers, n, results);
  };
  await Promise.all(Array.from({ length: count }, (_, index) => caller(index)));
  return results;
}

/** Dials this many times a second, whether the last dial is over or not. */
export class SteadyDials {
  readonly results = new DialResults();
  readonly #rate: AtRate;

  constructor(callers: Callers, perSecond: number) {
    this.#rate = new AtRate(perSecond, (index) => dialOnce(callers, index, this.results));
  }

  /** Stops dialling. Resolves when the last dial has its answer. */
  async stop(): Promise<DialResults> {
    await this.#rate.stop();
    return this.results;
  }
}

/** Dials by HTTP CONNECT, measured from the connection to the answer, and closes the tunnel at once. */
async function dialOnce({ gateways, target }: Callers, n: number, results: DialResults): Promise<void> {
  const start = performance.now();
  try {
    const tunnel = await answered(gateways[n % gateways.length] as Door, 'connect', target.next(), DIAL_DEADLINE);
    results.latencies.push(performance.now() - start);
    tunnel.resume().end();
  } catch (error) {
    results.failures.push((error as Error).message);
  }
}
