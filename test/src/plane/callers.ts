import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { grpcThrough, type Scope, tunnelThrough } from '../harness/index.ts';
import { carries } from './dials.ts';

/** Time between the starts of two dials, in milliseconds. */
const DIAL_EVERY = 20;

/** Short dials at once. If the machine is too slow for the rate, the next dial waits, so that they do not pile up. */
const MOST_DIALS = 25;

/** Time between two chunks of a long tunnel, in milliseconds. */
const SEND_EVERY = 100;

/** Callers behind a balancer: dials by gRPC and HTTP CONNECT in turn, as steadily as the machine allows, and long tunnels. */
export class Callers {
  dials = 0;
  tunnels = 0;
  readonly failures: string[] = [];
  readonly cut: string[] = [];
  readonly #scope: Scope;
  readonly #uds: string;
  readonly #destination: string;
  readonly #running = new Set<Promise<void>>();
  #underWay = 0;
  #stopped = false;

  constructor(scope: Scope, uds: string, destination: string) {
    this.#scope = scope;
    this.#uds = uds;
    this.#destination = destination;
  }

  start(longTunnels: number, lifeMs: number): void {
    this.#keep(this.#dialSteadily());
    for (let index = 0; index < longTunnels; index++) this.#keep(this.#carrySteadily(index, lifeMs));
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    while (this.#running.size > 0) await Promise.all(this.#running);
  }

  #keep(work: Promise<void>): void {
    const kept: Promise<void> = work.finally(() => this.#running.delete(kept));
    this.#running.add(kept);
  }

  async #dialSteadily(): Promise<void> {
    while (!this.#stopped && !this.#scope.signal.aborted) {
      if (this.#underWay < MOST_DIALS) this.#keep(this.#dialOnce(this.dials++));
      await sleep(DIAL_EVERY);
    }
  }

  async #dialOnce(index: number): Promise<void> {
    this.#underWay++;
    try {
      const tunnel = await this.#dial(index);
      // The end of its agent or hub may cut a short tunnel. Only long tunnels count as cut.
      await carries(tunnel).catch(() => {});
      tunnel.destroy();
    } catch (error) {
      this.failures.push(`dial ${index}: ${(error as Error).message}`);
    } finally {
      this.#underWay--;
    }
  }

  #dial(index: number): Promise<Duplex> {
    const via = { uds: this.#uds };
    if (index % 2 === 0) return grpcThrough(this.#scope, via, this.#destination);
    return tunnelThrough(this.#scope, { via, destination: this.#destination });
  }

  async #carrySteadily(index: number, lifeMs: number): Promise<void> {
    while (!this.#stopped && !this.#scope.signal.aborted) {
      try {
        const tunnel = await this.#dial(index);
        this.tunnels++;
        await this.#carry(tunnel, lifeMs).catch((error) => this.cut.push(`tunnel ${index}: ${error.message}`));
        tunnel.destroy();
      } catch (error) {
        this.failures.push(`tunnel ${index}: ${(error as Error).message}`);
      }
    }
  }

  /** Sends random bytes for a while, then ends. Fails unless the same bytes came back. */
  async #carry(tunnel: Duplex, lifeMs: number): Promise<void> {
    const sent = createHash('sha256');
    const received = createHash('sha256');
    let left = 0;
    tunnel.on('data', (chunk: Buffer) => {
      received.update(chunk);
      left -= chunk.length;
    });
    tunnel.resume();
    const failed = once(tunnel, 'close').then(() => {
      throw new Error(`ended with ${left} bytes missing`);
    });
    failed.catch(() => {});
    const until = performance.now() + lifeMs;
    while (performance.now() < until) {
      const chunk = randomBytes(2048);
      sent.update(chunk);
      left += chunk.length;
      tunnel.write(chunk);
      await Promise.race([sleep(SEND_EVERY), failed]);
    }
    while (left > 0) await Promise.race([once(tunnel, 'data'), failed]);
    if (sent.digest('hex') !== received.digest('hex')) throw new Error('other bytes came back');
  }
}
