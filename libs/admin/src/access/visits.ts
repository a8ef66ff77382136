import type { Socket } from 'node:net';
import type { Refused } from '@isthmus/service';
import { faultOfVisitor, type Visitor, visitorOf } from './visitor.ts';

/** How often open connections are looked at, in milliseconds. A timer for the next expiry would be wrong when the clock is set. */
const LOOK_EVERY_MS = 1000;

/** The open connections of visitors with certificates. Each ends within a second of its certificate or its tenant. */
export class Visits {
  readonly #tenants: Parameters<typeof faultOfVisitor>[1];
  readonly #refused: Refused;
  readonly #open = new Map<Socket, Visitor>();
  #timer: NodeJS.Timeout | undefined;

  constructor(tenants: Parameters<typeof faultOfVisitor>[1], refused: Refused) {
    this.#tenants = tenants;
    this.#refused = refused;
  }

  /** Watches a connection until it closes. A certificate that is no operator's stays: it is told why at each request. */
  enter(socket: Socket): void {
    const visitor = visitorOf(socket);
    if (socket.destroyed || visitor.expires === undefined || visitor.fault) return;
    this.#open.set(socket, visitor);
    this.#timer ??= setInterval(() => this.#look(), LOOK_EVERY_MS).unref();
    socket.once('close', () => this.#leave(socket));
  }

  #look(): void {
    for (const [socket, visitor] of this.#open) {
      const fault = faultOfVisitor(visitor, this.#tenants);
      if (!fault) continue;
      this.#leave(socket);
      this.#refused(visitor.operator.remote, fault);
      socket.destroy();
    }
  }

  #leave(socket: Socket): void {
    this.#open.delete(socket);
    if (this.#open.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}
