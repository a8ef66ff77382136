import { connect, createServer, type Server, type Socket } from 'node:net';
import { authority } from './destination.ts';
import type { Scope } from './scope.ts';
import { within } from './until.ts';

/** What one direction holds at most: 100 ms of 80 MB/s. */
const HELD_BYTES = 8 << 20;

interface Pair {
  readonly near: Socket;
  readonly far: Socket;
}

/** A TCP relay between two parts of a plane, for faults of the network between them. It listens on 127.0.0.1. */
export class Relay implements AsyncDisposable {
  readonly host = '127.0.0.1';
  port = 0;
  /** Connections taken so far. */
  accepted = 0;
  /** Milliseconds by which every chunk is held back, each way. */
  delayMs = 0;
  readonly #ports: readonly number[];
  readonly #pairs = new Set<Pair>();
  readonly #server: Server;
  #silent = false;
  #refusing = false;

  /** Connections go to the ports of 127.0.0.1 in turn. */
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

  /** Carries nothing any more, as a half-open connection does: no byte, no end, no reset; new connections neither. */
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

  /** Closes what is open in good order (FIN both ways). */
  drop(): void {
    for (const { near, far } of this.#pairs) {
      near.end();
      far.end();
    }
  }

  /** Ends what is open by a reset both ways. */
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
    // In order of arrival, whatever the delay was set to meanwhile.
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
    await within(closed, { what: `the end of the relay ${this.authority}` });
  }
}

/** A relay to ports of 127.0.0.1, in turn when there are several, as a balancer does. */
export async function relayTo(scope: Scope, ...ports: number[]): Promise<Relay> {
  return scope.use(await new Relay(ports).listen());
}
