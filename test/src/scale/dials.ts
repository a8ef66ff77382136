import { connect } from 'node:net';
import { quantile } from '../bench/figures.ts';
import { echo } from '../harness/destination.ts';
import type { Scope } from '../harness/scope.ts';

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
  /** Unix sockets of gateways, used in turn. */
  readonly gateways: readonly string[];
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
  readonly #running = new Set<Promise<void>>();
  readonly #timer: NodeJS.Timeout;

  constructor(callers: Callers, perSecond: number) {
    const start = performance.now();
    let dials = 0;
    this.#timer = setInterval(() => {
      for (const due = ((performance.now() - start) / 1000) * perSecond; dials < due; ) {
        const dial = dialOnce(callers, dials++, this.results).finally(() => this.#running.delete(dial));
        this.#running.add(dial);
      }
    }, 5);
  }

  /** Stops dialling. Resolves when the last dial has its answer. */
  async stop(): Promise<DialResults> {
    clearInterval(this.#timer);
    await Promise.all(this.#running);
    return this.results;
  }
}

/** Dials by HTTP CONNECT, measured from the connection to the answer, and closes the tunnel at once. */
function dialOnce({ gateways, target }: Callers, n: number, results: DialResults): Promise<void> {
  return new Promise((resolve) => {
    const start = performance.now();
    const destination = target.next();
    const socket = connect({ path: gateways[n % gateways.length] as string });
    let over = false;
    const done = (failure?: string) => {
      if (over) return;
      over = true;
      clearTimeout(timer);
      if (failure === undefined) results.latencies.push(performance.now() - start);
      else results.failures.push(failure);
      socket.end();
      resolve();
    };
    const timer = setTimeout(() => {
      done('no answer in time');
      socket.destroy();
    }, DIAL_DEADLINE);
    socket.once('connect', () => socket.write(`CONNECT ${destination} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`));
    socket.once('data', (answer) => {
      const line = answer.toString('latin1').split('\r\n', 1)[0] ?? '';
      done(line.startsWith('HTTP/1.1 200 ') ? undefined : line);
      socket.resume();
    });
    socket.once('error', (error) => done(error.message));
    socket.once('close', () => done('closed without an answer'));
  });
}
