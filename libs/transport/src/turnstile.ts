import type { Socket } from 'node:net';

/**
 * Handshakes that begin in one turn of the event loop. One costs about two milliseconds of processor time in all, so a turn stays
 * short and everything else, above all PINGs and dials, gets its share between.
 */
const PER_TURN = 16;

/** How long a connection may wait for its turn, in milliseconds: clients give up after 10 s, and need the rest for the handshake. */
const PATIENCE = 5000;

/** Connections that may wait. More would only wait in vain: a processor does some hundred handshakes a second. */
const MAX_WAITING = 8192;

interface Waiting {
  readonly socket: Socket;
  readonly since: number;
  readonly begin: () => void;
}

/**
 * Lets new connections in one after the other. When thousands come at one moment, as agents do whose hub died, doing all their
 * handshakes at once would keep each from being done in time: all would be given up, and come again.
 */
export class Turnstile {
  readonly #waiting: Waiting[] = [];
  #turn: NodeJS.Immediate | undefined;

  /** Calls `begin` soon, or closes the socket when that would be too late. */
  enter(socket: Socket, begin: () => void): void {
    if (this.#waiting.length === MAX_WAITING) {
      socket.destroy();
      return;
    }
    // Its handshake has its own listener; this one holds while it waits.
    socket.on('error', () => {});
    this.#waiting.push({ socket, since: performance.now(), begin });
    this.#turn ??= setImmediate(() => this.#admit());
  }

  /** Closes whoever waits. */
  close(): void {
    for (const { socket } of this.#waiting.splice(0)) socket.destroy();
  }

  #admit(): void {
    const latest = performance.now() - PATIENCE;
    for (let begun = 0; begun < PER_TURN; ) {
      const next = this.#waiting.shift();
      if (!next) break;
      if (next.since < latest) next.socket.destroy();
      if (next.socket.destroyed) continue;
      next.begin();
      begun++;
    }
    this.#turn = this.#waiting.length > 0 ? setImmediate(() => this.#admit()) : undefined;
  }
}
