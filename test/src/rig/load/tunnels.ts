import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import { answered } from '../dial.ts';
import { helloOf } from './hello.ts';
import type { Front } from './messages.ts';
import { MODES } from './modes.ts';

/** Dials at a time while a work prepares. */
const OPENING = 8;

/** How long a work may take to open all its tunnels, in milliseconds; 20,000 take a while. */
const OPEN_WITHIN = 120_000;

const DIAL_WITHIN = 5000;

/** How many bytes a plane may send ahead of a gRPC caller: upstream's library lets its window grow with its reading speed. */
const READING = 1024 * 1024;
/** The same for a caller that does not read: HTTP/2's default. */
export const STANDING = 65_535;

/** A tunnel that has not closed cleanly within this time is destroyed, in milliseconds. */
const CLOSE_WITHIN = 1000;

export interface Opening {
  /** Run on each fresh tunnel. A tunnel that fails it does not count. */
  readonly prove?: (tunnel: Duplex) => Promise<void>;
  readonly window?: number;
}

/** What a front without a plane may say. */
interface Bare {
  readonly port: number;
  readonly host?: string;
  readonly named?: true;
}

/** Opens tunnels through fronts in turn, and counts what goes wrong. */
export class Tunnels {
  readonly errors: Record<string, number> = {};
  readonly #fronts: readonly Front[];
  #opened = 0;
  /** How long a dial may take to be answered, and a tunnel to deliver its first byte, in milliseconds. */
  readonly within: number;
  readonly #destinationPort: number;

  constructor(fronts: readonly Front[], destinationPort: number, within = DIAL_WITHIN) {
    this.#fronts = fronts;
    this.#destinationPort = destinationPort;
    this.within = within;
  }

  failed(what: string, error: unknown): void {
    const kind = `${what}: ${error instanceof Error ? error.message : error}`;
    this.errors[kind] = (this.errors[kind] ?? 0) + 1;
  }

  /** Opens one connection per tunnel, as API servers do. `window`: how many bytes may be sent ahead of a gRPC caller. */
  async open(window = READING): Promise<Duplex> {
    const front = this.#fronts[this.#opened++ % this.#fronts.length] as Front;
    if (front.kind === 'door') {
      const { door, protocol } = front;
      const tunnel = await answered(door, protocol, `127.0.0.1:${this.#destinationPort}`, this.within, window);
      return tunnel.on('error', () => {});
    }
    const { host = '127.0.0.1', port, named } = { port: this.#destinationPort, ...front } as Bare;
    const socket = connect({ port, host, noDelay: true });
    await once(socket, 'connect');
    if (named) socket.write(helloOf(randomBytes(32)));
    return socket.on('error', () => {});
  }

  /** Opens many tunnels, a few at a time. Those that fail are counted and left out. */
  async openMany(count: number, { prove, window }: Opening = {}): Promise<Duplex[]> {
    const opened: Duplex[] = [];
    const late = performance.now() + OPEN_WITHIN;
    let next = 0;
    const open = async () => {
      while (next++ < count && performance.now() < late) {
        try {
          const tunnel = await this.open(window);
          await prove?.(tunnel);
          opened.push(tunnel);
        } catch (error) {
          this.failed('open', error);
        }
      }
    };
    await Promise.all(Array.from({ length: Math.min(count, OPENING) }, open));
    return opened;
  }
}

/** Sends bytes, and returns as many as are expected. What else arrives is dropped. */
export function answerTo(tunnel: Duplex, sent: Buffer, expected: number, within: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const seen: Buffer[] = [];
    let missing = expected;
    const settle = (outcome: () => void) => {
      clearTimeout(timer);
      tunnel.off('close', lost).off('end', lost).off('data', take);
      outcome();
    };
    const fail = (reason: string) => settle(() => reject(new Error(reason)));
    const lost = () => fail(tunnel.errored?.message ?? 'ended without an answer');
    const take = (chunk: Buffer) => {
      seen.push(chunk);
      missing -= chunk.length;
      if (missing <= 0) settle(() => resolve(Buffer.concat(seen)));
    };
    const timer = setTimeout(() => {
      tunnel.destroy();
      fail(`nothing came back within ${within / 1000} s`);
    }, within);
    tunnel.once('close', lost).once('end', lost).on('data', take);
    tunnel.write(sent);
    // A CONNECT's answer leaves its socket paused.
    tunnel.resume();
  });
}

/** Sends a byte that the destination sends back, as all that follows. */
export async function oneByte(tunnel: Duplex, within = DIAL_WITHIN): Promise<void> {
  await answerTo(tunnel, Buffer.of(MODES.echo, 0x2e), 1, within);
}

/** Ends a tunnel cleanly: ends our half first, then reads data in flight to its end. */
export function close(tunnel: Duplex): Promise<void> {
  return new Promise((resolve) => {
    if (tunnel.destroyed) {
      resolve();
      return;
    }
    const timer = setTimeout(() => tunnel.destroy(), CLOSE_WITHIN);
    tunnel.once('end', () => tunnel.destroy());
    tunnel.once('close', () => {
      clearTimeout(timer);
      resolve();
    });
    tunnel.resume();
    tunnel.end();
  });
}

export async function closeAll(tunnels: readonly Duplex[]): Promise<void> {
  await Promise.all(tunnels.map(close));
}
