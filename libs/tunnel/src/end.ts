import type { Duplex } from 'node:stream';
import { onceClosed } from '@isthmus/runtime';

/** What an end of a tunnel tells its user, which joins it with the other end. Nothing of it throws. */
export interface EndUser {
  /** Bytes came. They count as taken. */
  onData(bytes: Uint8Array): void;
  /** `TunnelEnd.write` has returned false, and now there is room again. */
  onDrain(): void;
  /** Nothing more comes. */
  onEnd(): void;
  /** Called last, and once. @param failure unset if it closed in order, or just went away */
  onClose(failure?: Error): void;
}

/**
 * One side of a tunnel: bytes in both directions with back-pressure, each of which ends for itself. Each of these is one: `SocketEnd`, `StreamEnd`,
 * `CallerStream`, `Half`, and a `DuplexEnd`.
 */
export interface TunnelEnd {
  /** False if the protocol behind it has no half-close (ANP's packets): the end of one direction then ends both. */
  readonly halfOpen: boolean;
  /** Begins to tell the user, with what has come before, once the caller has returned. Call it once. @param tenant whose turns a socket has */
  use(user: EndUser, tenant: string): void;
  /** @returns whether there is room for more; if not, wait for `EndUser.onDrain` */
  write(bytes: Uint8Array): boolean;
  /** The user writes nothing more. @param last whether nothing more comes from this end either */
  finish(last: boolean): void;
  pause(): void;
  resume(): void;
  /** Bytes that wait here for a slow reader. */
  readonly writableLength: number;
  /** Whether it has no way to the tunnel's far end at the moment. */
  readonly detached: boolean;
  /** Of a half: grows with each byte that a socket takes at either end. Others know only what waits here. */
  readonly progress?: number;
  /** Calls back once everything written has been taken, and the end. */
  whenFinished(then: () => void): void;
  /**
   * Calls back once what was written has reached the tunnel's far end, as far as this end can know.
   * @param silentMs how long ago the last of it was written, in milliseconds
   */
  whenDelivered(then: () => void, silentMs: number): void;
  /**
   * Passes on to a destination's end what the tunnel's halves tell each other beside bytes. Returns false if not both of them are elsewhere. Unset: it
   * does not.
   */
  readonly passOn?: (destination: TunnelEnd) => boolean;
  /** Closes it. Everything was written to it, and nobody needs what may still come. */
  close(): void;
  /**
   * Cuts both ways at once and drops what is queued. Whoever is behind this end sees a reset, and not an orderly end, where its protocol has
   * one. Safe to call more than once, never throws, never waits.
   */
  abort(reason: Error): void;
}

/** The end at a tunnel's destination, or on the way there. */
export interface DestinationEnd extends TunnelEnd {
  /** Calls back once a tunnel has left it: it has closed, or its stream carries a half. */
  whenLeft(left: () => void): void;
}

/** A Duplex as an end of a tunnel: a Go agent's packets. */
export class DuplexEnd<Stream extends Duplex = Duplex> implements DestinationEnd {
  readonly halfOpen: boolean;
  readonly detached: boolean = false;
  readonly stream: Stream;

  constructor(stream: Stream, halfOpen = true) {
    this.stream = stream;
    this.halfOpen = halfOpen;
  }

  use(user: EndUser, _tenant: string): void {
    const { stream } = this;
    let failure: Error | undefined;
    stream.on('error', (error) => {
      failure ??= error;
    });
    stream.on('drain', () => user.onDrain());
    stream.on('end', () => user.onEnd());
    const { errored } = stream;
    if (stream.destroyed) queueMicrotask(() => user.onClose(errored ?? undefined));
    else stream.on('close', () => user.onClose(failure));
    stream.on('data', (bytes) => user.onData(bytes));
  }

  write(bytes: Uint8Array): boolean {
    return this.stream.write(bytes);
  }

  finish(_last: boolean): void {
    this.stream.end();
  }

  pause(): void {
    this.stream.pause();
  }

  resume(): void {
    this.stream.resume();
  }

  get writableLength(): number {
    return this.stream.writableLength;
  }

  whenFinished(then: () => void): void {
    if (this.stream.writableFinished) then();
    else this.stream.once('finish', then);
  }

  whenDelivered(then: () => void): void {
    const { stream } = this;
    if (stream.writableLength > 0 && !stream.destroyed) stream.write('', () => then());
    else then();
  }

  close(): void {
    this.stream.destroy();
  }

  whenLeft(left: () => void): void {
    onceClosed(this.stream, left);
  }

  abort(reason: Error): void {
    this.stream.destroy(reason);
  }
}
