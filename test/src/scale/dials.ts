import type { Duplex } from 'node:stream';
import { echo } from '../harness/destination.ts';
import type { Ways } from '../harness/plane.ts';
import type { Scope } from '../harness/scope.ts';
import { answered, type Protocol } from '../rig/dial.ts';
import { quantile } from '../rig/figures.ts';
import { AtRate } from '../rig/load/at-rate.ts';

/** Each dial leaves a port in TIME_WAIT for a minute. Every address has its own 28,000 ports. */
const ADDRESSES = 16;

/** How long a dial may take, in milliseconds; the gateway's own limit is lower. */
export const DIAL_DEADLINE = 35_000;

/** The results of dials. */
export class DialResults {
  /** From the connection to the answer, in milliseconds, of the dials that succeeded. */
  readonly latencies: number[] = [];
  readonly failures: string[] = [];
  /** Who was reached instead of the caller's own tenant. */
  readonly crossed: string[] = [];

  get tried(): number {
    return this.latencies.length + this.failures.length + this.crossed.length;
  }

  quantile(q: number): number {
    return this.latencies.length === 0 ? Number.NaN : quantile(this.latencies, q);
  }

  /** Dials once. @param who whether whom the tunnel reaches is right, or else who it is */
  async dial(door: Ways, protocol: Protocol, destination: string, who: (tunnel: Duplex) => Promise<true | string>) {
    const start = performance.now();
    try {
      const tunnel = await answered(door, protocol, destination, DIAL_DEADLINE);
      const took = performance.now() - start;
      const reached = await who(tunnel);
      if (reached === true) this.latencies.push(took);
      else this.crossed.push(reached);
    } catch (error) {
      this.failures.push((error as Error).message);
    }
  }
}

/** Dials by HTTP CONNECT, and closes the tunnel at once. @param index which of all dials it is: they take turns */
export type DialOnce = (index: number, results: DialResults) => Promise<void>;

/** Callers of these gateways, and what they dial: it accepts, and ends when the other side does. */
export async function callersOf(scope: Scope, doors: readonly Ways[]): Promise<DialOnce> {
  const { port } = await echo(scope, { host: '0.0.0.0' });
  let dials = 0;
  return (index, results) => {
    const destination = `127.0.0.${1 + (dials++ % ADDRESSES)}:${port}`;
    return results.dial(doors[index % doors.length] as Ways, 'connect', destination, async (tunnel) => {
      tunnel.resume().end();
      return true;
    });
  };
}

/** Dials with `count` callers until `over`. Each dials again as soon as its last dial is over. */
export async function dialAsFast(
  dial: (index: number, results: DialResults, caller: number) => Promise<void>,
  count: number,
  over: (results: DialResults) => boolean,
): Promise<DialResults> {
  const results = new DialResults();
  const dialAll = async (caller: number) => {
    for (let index = caller; !over(results); index++) await dial(index, results, caller);
  };
  await Promise.all(Array.from({ length: count }, (_, caller) => dialAll(caller)));
  return results;
}

/** Dials this many times a second, whether the last dial is over or not. */
export class SteadyDials {
  readonly results = new DialResults();
  readonly #rate: AtRate;

  constructor(dial: DialOnce, perSecond: number) {
    this.#rate = new AtRate(perSecond, (index) => dial(index, this.results));
  }

  /** Stops dialling. Resolves when the last dial has its answer. */
  async stop(): Promise<DialResults> {
    await this.#rate.stop();
    return this.results;
  }
}
