import type { Duplex } from 'node:stream';
import { endAfterPeer, onRead, writeTo } from '@isthmus/runtime';

const NOTHING = new Uint8Array(0);

/** What an end of a tunnel tells its user, which joins it with the other end. Nothing of it throws. */
export interface EndUser {
  /** Bytes came. They count as taken. */
  onData(bytes: Uint8Array): void;
  /** `UsedEnd.write` has returned false, and now there is room again. */
  onDrain(): void;
  /** Nothing more comes. */
  onEnd(): void;
  /** Called last, and once. @param failure unset if it closed in order, or just went away */
  onClose(failure?: Error): void;
}

/** A `TunnelEnd` (dial.ts) as its user, a Tunnel, needs it. Each of these is one: `SocketEnd`, `StreamEnd`, `CallerStream`, `Half`. */
export interface UsedEnd {
  /** Begins to tell the user, with what has come before, and not before the caller has returned. Call it once. */
  use(user: EndUser): void;
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
  /** Of a half: grows with each byte that a socket takes at either end. 0 for others. */
  readonly progress: number;
  /** Calls back once everything written has been taken, and the end. */
  whenFinished(then: () => void): void;
  /**
   * Calls back once what was written has reached the tunnel's far end, as far as this end can know.
   * @param silentMs how long ago the last of it was written, in milliseconds
   */
  whenDelivered(then: () => void, silentMs: number): void;
  /** Closes it. Everything was written to it, and nobody needs what may still come. */
  close(): void;
}

/** What is known of the stream: see `TunnelEnd`. */
interface StreamUse {
  readonly explain?: (failure: Error) => Error;
  readonly delivered?: (then: () => void, silentMs: number) => void;
}

/** A Duplex as an end of a tunnel. */
export class UsedStream implements UsedEnd {
  readonly #stream: Duplex;
  readonly #end: StreamUse;

  constructor(stream: Duplex, end: StreamUse) {
    this.#stream = stream;
    this.#end = end;
  }

  use(user: EndUser): void {
    const stream = this.#stream;
    let failure: Error | undefined;
    stream.on('error', (error) => {
      failure ??= this.#end.explain?.(error) ?? error;
    });
    stream.on('drain', () => user.onDrain());
    stream.on('end', () => user.onEnd());
    const { errored } = stream;
    if (stream.destroyed)
      queueMicrotask(() => user.onClose(errored ? (this.#end.explain?.(errored) ?? errored) : undefined));
    else stream.on('close', () => user.onClose(failure));
    onRead(stream, (bytes) => user.onData(bytes));
  }

  write(bytes: Uint8Array): boolean {
    return writeTo(this.#stream, bytes);
  }

  finish(last: boolean): void {
    if (last) endAfterPeer(this.#stream);
    else this.#stream.end();
  }

  pause(): void {
    this.#stream.pause();
  }

  resume(): void {
    this.#stream.resume();
  }

  get writableLength(): number {
    return this.#stream.writableLength;
  }

  get detached(): boolean {
    return false;
  }

  get progress(): number {
    return 0;
  }

  whenFinished(then: () => void): void {
    if (this.#stream.writableFinished) then();
    else this.#stream.once('finish', then);
  }

  whenDelivered(then: () => void, silentMs: number): void {
    const stream = this.#stream;
    const written = (silent: number) => {
      if (this.#end.delivered) this.#end.delivered(then, silent);
      else then();
    };
    // What a slow reader has only now made room for is still on its way, however long ago it was read.
    if (stream.writableLength > 0 && !stream.destroyed) stream.write(NOTHING, () => written(0));
    else written(silentMs);
  }

  close(): void {
    this.#stream.destroy();
  }
}
