import type { Duplex } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import { MODES } from './modes.ts';
import { close, oneByte, type Tunnels } from './tunnels.ts';

const PING_BYTES = 64;
const PING = Buffer.alloc(PING_BYTES, '.');

/** What workers did between two moments; times in microseconds. */
export class Phase {
  readonly from = performance.now();
  readonly samples: Record<'ping' | 'dial' | 'first byte' | 'cycle', number[]> = {
    ping: [],
    dial: [],
    'first byte': [],
    cycle: [],
  };
  failures = 0;
  /** Operations that had hung for more than a second when the phase ended. */
  stuck = 0;
  /** The age of the oldest operation that ran at that moment. */
  oldest = 0;
  seconds = 0;

  end(workers: Iterable<Worker>): this {
    const now = performance.now();
    this.seconds = (now - this.from) / 1000;
    for (const worker of workers) {
      worker.phase = undefined;
      if (worker.began === undefined) continue;
      const age = now - worker.began;
      this.oldest = Math.max(this.oldest, age * 1000);
      if (age > 1000) this.stuck++;
    }
    return this;
  }
}

/** Repeats one operation until it is stopped, and reports to the running phase. */
export interface Worker {
  phase: Phase | undefined;
  /** When the running operation began. */
  began: number | undefined;
  /** Settles once it has stopped, if that takes time. */
  readonly ended?: Promise<void>;
  stop(): void;
}

export async function stopAll(workers: readonly Worker[]): Promise<void> {
  for (const worker of workers) worker.stop();
  await Promise.all(workers.map(({ ended }) => ended));
}

export function beginPhase(workers: Iterable<Worker>): Phase {
  const phase = new Phase();
  for (const worker of workers) worker.phase = phase;
  return phase;
}

/** Sends requests and reads answers of 64 bytes, again and again, or `every` milliseconds after the last. */
export class Pinger implements Worker {
  phase: Phase | undefined;
  began: number | undefined;
  readonly #tunnel: Duplex;
  readonly #tunnels: Tunnels;
  readonly #every: number;
  #missing = 0;
  #stopped = false;

  constructor(tunnel: Duplex, tunnels: Tunnels, every = 0) {
    this.#tunnel = tunnel;
    this.#tunnels = tunnels;
    this.#every = every;
    tunnel.on('data', (chunk: Buffer) => this.#take(chunk));
    tunnel.once('close', () => this.#lost());
    tunnel.write(Buffer.of(MODES.echo));
    tunnel.resume();
    this.#send();
  }

  stop(): void {
    this.#stopped = true;
  }

  #send(): void {
    this.began = performance.now();
    this.#missing = PING_BYTES;
    this.#tunnel.write(PING);
  }

  #take(chunk: Buffer): void {
    this.#missing -= chunk.length;
    if (this.#missing > 0 || this.began === undefined) return;
    const wrong = this.#missing < 0 || chunk.compare(PING, 0, chunk.length) !== 0;
    if (wrong) this.#tunnels.failed('ping', 'wrong bytes');
    else this.phase?.samples.ping.push((performance.now() - this.began) * 1000);
    this.began = undefined;
    if (this.#stopped || wrong) return;
    if (this.#every > 0) setTimeout(() => this.#send(), this.#every);
    else this.#send();
  }

  #lost(): void {
    this.began = undefined;
    if (this.#stopped) return;
    this.#tunnels.failed('ping', 'its tunnel ended');
    if (this.phase) this.phase.failures++;
  }
}

/** Dials, sends one byte there and back, and closes; again and again, or once per `every` milliseconds. */
export class Dialler implements Worker {
  phase: Phase | undefined;
  began: number | undefined;
  readonly ended: Promise<void>;
  readonly #tunnels: Tunnels;
  readonly #every: number;
  #stopped = false;

  constructor(tunnels: Tunnels, every = 0) {
    this.#tunnels = tunnels;
    this.#every = every;
    // Not at once, so that a phase can begin with the first dial.
    this.ended = Promise.resolve().then(() => this.#run());
  }

  stop(): void {
    this.#stopped = true;
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      const phase = this.phase;
      const start = performance.now();
      this.began = start;
      const since = () => (performance.now() - start) * 1000;
      try {
        const tunnel = await this.#tunnels.open();
        const dialled = since();
        await oneByte(tunnel, this.#tunnels.within);
        const answered = since();
        await close(tunnel);
        if (phase && phase === this.phase) {
          phase.samples.dial.push(dialled);
          phase.samples['first byte'].push(answered);
          phase.samples.cycle.push(since());
        }
      } catch (error) {
        this.#tunnels.failed('dial', error);
        if (phase) phase.failures++;
        await pause(1);
      }
      this.began = undefined;
      const left = start + this.#every - performance.now();
      if (left > 0) await pause(left);
    }
  }
}
