import { connect, createServer, type Server, type Socket } from 'node:net';
import { within } from '@isthmus/runtime/testing';
import { authority } from './destination.ts';
import type { Scope } from './scope.ts';

/** The most bytes that one direction holds: 100 ms of 80 MB/s. */
const HELD_BYTES = 8 << 20;

interface Pair {
  readonly near: Socket;
  readonly far: Socket;
}

/** A TCP relay between two parts of a plane, for network faults between them. It listens on 127.0.0.1. */
export class Relay implements AsyncDisposable {
  readonly host = '127.0.0.1';
  port = 0;
  /** Connections accepted so far. */
  accepted = 0;
  /** How long every chunk is held back in each direction, in milliseconds. */
  delayMs = 0;
  readonly #ports: readonly number[];
  readonly #pairs = new Set<Pair>();
  readonly #stranded = new Set<Socket>();
  readonly #server: Server;
  #silent = false;
  #refusing = false;

  /** @param ports connections go to these ports of 127.0.0.1 in turn */
  constructor(ports: readonly number[]) {
    this.#ports = ports;
    this.#server = createServer({ allowHalfOpen: true }, (near) => this.#accept(near));
  }

  async listen(): Promise<this> {
    await new Promise<void>((resolve, reject) => this.#server.once('error', reject).listen(0, this.host, resolve));
    this.port = (this.#server.address() as { port: number }).port;
    return this;
  }

  get authority(): string {
    return authority(this.host, this.port);
  }

  get open(): number {
    return this.#pairs.size;
  }

  /** Carries nothing any more, like a half-open connection: no byte, no end, no reset. The same holds for new connections. */
  pause(): void {
    this.#silent = true;
    for (const { near, far } of this.#pairs) {
      near.pause();
      far.pause();
    }
  }

  resume(): void {
    this.#silent = false;
    for (const { near, far } of this.#pairs) {
      near.resume();
      far.resume();
    }
  }

  /** Carries nothing more on the open connections, and the new ones: as when one side has another address from now on. */
  strand(): void {
    for (const { near, far } of this.#pairs) {
      for (const socket of [near, far]) {
        for (const event of ['data', 'end', 'close']) socket.removeAllListeners(event);
        this.#stranded.add(socket.pause());
      }
    }
    this.#pairs.clear();
  }

  /** Closes open connections cleanly (FIN both ways). */
  drop(): void {
    for (const { near, far } of this.#pairs) {
      near.end();
      far.end();
    }
  }

  /** Resets open connections in both directions. */
  reset(): void {
    for (const { near, far } of this.#pairs) {
      near.resetAndDestroy();
      far.resetAndDestroy();
    }
  }

  /** Resets every new connection until `accept()`. */
  refuse(): void {
    this.#refusing = true;
  }

  accept(): void {
    this.#refusing = false;
  }

  #accept(near: Socket): void {
    const port = this.#ports[this.accepted++ % this.#ports.length] as number;
    near.on('error', () => {});
    if (this.#refusing) return void near.resetAndDestroy();
    const far = connect({ port, host: this.host, allowHalfOpen: true });
    far.on('error', () => {});
    const pair = { near, far };
    this.#pairs.add(pair);
    this.#carry(near, far);
    this.#carry(far, near);
    if (this.#silent) {
      near.pause();
      far.pause();
    }
  }

  #carry(from: Socket, to: Socket): void {
    let held = 0;
    const waiting: (() => void)[] = [];
    // Keeps the order of arrival even if the delay changes meanwhile.
    const later = (act: () => void) => {
      if (this.delayMs === 0 && waiting.length === 0) return act();
      waiting.push(act);
      setTimeout(() => waiting.shift()?.(), this.delayMs);
    };
    from.on('data', (chunk: Buffer) => {
      held += chunk.length;
      if (held > HELD_BYTES) from.pause();
      const sent = () => {
        held -= chunk.length;
        if (held <= HELD_BYTES && !this.#silent) from.resume();
      };
      later(() => to.write(chunk, sent));
    });
    from.once('end', () => later(() => to.end()));
    from.once('close', () => {
      this.#forget(from);
      if (from.errored || !from.readableEnded) later(() => to.resetAndDestroy());
    });
  }

  #forget(socket: Socket): void {
    for (const pair of this.#pairs) {
      if ((pair.near === socket || pair.far === socket) && pair.near.destroyed && pair.far.destroyed) {
        this.#pairs.delete(pair);
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const { near, far } of this.#pairs) {
      near.destroy();
      far.destroy();
    }
    for (const socket of this.#stranded) socket.destroy();
    await within(closed, { what: `the end of the relay ${this.authority}` });
  }
}

/** A relay to ports of 127.0.0.1. It uses several ports in turn, as a balancer does. */
export async function relayTo(scope: Scope, ...ports: number[]): Promise<Relay> {
  return scope.use(await new Relay(ports).listen());
}
