import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import { answered } from '../../chaos/load/dial.ts';
import { Scope } from '../../harness/index.ts';
import type { Started } from '../families.ts';
import { quantile } from '../figures.ts';
import { header, MODES } from '../load/modes.ts';
import type { Case } from './cases.ts';

/** How long downloads run before they are measured, in milliseconds. */
const SETTLE_MS = 10_000;
/** How long a dial may take, in milliseconds. */
const DIAL_MS = 30_000;
/** How often a dial is made beside small tunnels, in milliseconds. */
const DIAL_EVERY_MS = 1000;
const PING = Buffer.alloc(64, '.');

/** What a case showed. */
export interface Seen {
  readonly kbPerSecond: number;
  readonly small?: Small;
}

/** How small tunnels fared beside downloads, and alone; times in milliseconds. */
interface Small {
  readonly idleMs: number;
  readonly p50Ms: number;
  readonly mostMs: number;
  /** The slowest dial. */
  readonly dialMs: number;
  /** Dials that failed, and tunnels that ended. */
  readonly lost: number;
}

/** How callers reach the destination: through a plane, or by bare TCP over the path. */
interface Way {
  readonly started?: Started;
  /** The destination's address and port, as seen from here; without a plane. */
  readonly host: string;
  readonly port: number;
}

/** Opens the tunnels of a case, lets them settle, and measures for a time. */
export async function measure(way: Way, { downloads, small }: Case, windowMs: number): Promise<Seen> {
  await using scope = new Scope();
  const open = async () => {
    const tunnel = await opened(way);
    tunnel.on('error', () => {});
    scope.defer(() => tunnel.destroy());
    return tunnel;
  };
  const pings = await Promise.all(Array.from({ length: small }, async () => new Pings(await open())));
  if (small > 0) await pause(windowMs / 2);
  const idleMs = quantile(
    pings.flatMap((each) => each.take()),
    0.5,
  );
  let bytes = 0;
  const bulk = await Promise.all(Array.from({ length: downloads }, open));
  for (const [index, tunnel] of bulk.entries()) {
    tunnel.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
    });
    tunnel.write(header('source', index));
    tunnel.resume();
  }
  // What happens while TCP starts counts for the small ones: they are there from the beginning.
  const dials = new Dials(small > 0 ? open : undefined);
  await pause(SETTLE_MS);
  const [before, from] = [bytes, performance.now()];
  await pause(windowMs);
  const kbPerSecond = (bytes - before) / (performance.now() - from);
  const took = pings.flatMap((each) => each.take());
  dials.stop();
  if (small === 0) return { kbPerSecond };
  const lost = dials.failed + [...pings, ...bulk].filter((each) => each.destroyed).length;
  const [p50Ms, mostMs, dialMs] = [quantile(took, 0.5), Math.max(...took), Math.max(...dials.took)];
  return { kbPerSecond, small: { idleMs, p50Ms, mostMs, dialMs, lost } };
}

function opened({ started, host, port }: Way): Promise<Duplex> {
  if (started?.door) return answered(started.door, 'connect', `127.0.0.1:${port}`, DIAL_MS);
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, noDelay: true });
    socket.once('error', reject).once('connect', () => resolve(socket));
  });
}

/** 64 bytes there and back, again and again. */
class Pings {
  readonly #tunnel: Duplex;
  readonly #since: number[] = [];
  #took: number[] = [];
  #missing = 0;

  constructor(tunnel: Duplex) {
    this.#tunnel = tunnel;
    tunnel.write(Buffer.of(MODES.echo));
    tunnel.on('data', (chunk: Buffer) => this.#back(chunk.length));
    tunnel.resume();
    this.#send();
  }

  get destroyed(): boolean {
    return this.#tunnel.destroyed;
  }

  /** What was measured since the last call, and how long the one under way has waited. */
  take(): number[] {
    const took = [...this.#took, ...this.#since.map((since) => performance.now() - since)];
    this.#took = [];
    return took;
  }

  #send(): void {
    this.#since.push(performance.now());
    this.#missing = PING.length;
    this.#tunnel.write(PING);
  }

  #back(bytes: number): void {
    this.#missing -= bytes;
    if (this.#missing > 0) return;
    this.#took.push(performance.now() - (this.#since.pop() as number));
    // Not at once: a path of 1 Mbit/s would carry little else.
    setTimeout(() => this.#send(), 50);
  }
}

/** Dials, one after the other. */
class Dials {
  readonly took: number[] = [0];
  failed = 0;
  readonly #timer: NodeJS.Timeout | undefined;

  constructor(open: (() => Promise<Duplex>) | undefined) {
    if (!open) return;
    this.#timer = setInterval(() => {
      const since = performance.now();
      open().then(
        (tunnel) => {
          this.took.push(performance.now() - since);
          tunnel.destroy();
        },
        () => this.failed++,
      );
    }, DIAL_EVERY_MS);
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
