import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { deferred } from './deferred.ts';
import type { TunnelEnd } from './dial.ts';
import { SessionLost } from './errors.ts';
import type { ClosedBy } from './events.ts';
import { writeGathered } from './gathered.ts';
import { youngGarbage } from './young-garbage.ts';

/** After one side is closed for good, how long the other may take to finish in good order, in milliseconds. */
const LINGER_MS = 500;

/** How long a half-closed tunnel may stay silent, in milliseconds: a peer that vanished behind a FIN is seen by nothing else. */
const HALF_CLOSED_IDLE_MS = 300_000;

export interface SpliceResult {
  readonly closedBy: ClosedBy;
  readonly error?: Error;
}

type Side = 'caller' | 'destination';

/**
 * Copies bytes between a caller's end and a destination's end until both are closed.
 *
 * A side's EOF half-closes the other; a side that fails or vanishes aborts the other; a side without half-close (`halfOpen`
 * false) that ends closes the other, which gets what is queued first. Nothing is held here: a full writer pauses its reader.
 */
export class Splice {
  /** Bytes from caller to destination. */
  up = 0;
  /** Bytes from destination to caller. */
  down = 0;

  readonly #done = deferred<SpliceResult>();
  readonly done = this.#done.promise;
  readonly #ends: Readonly<Record<Side, TunnelEnd>>;
  readonly #open = new Set<Side>(['caller', 'destination']);
  readonly #ended = new Set<Side>();
  #result: SpliceResult | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** What the timer waits for: silence while half-closed, which data puts off, or the end of a close, which nothing does. */
  #timerMs = 0;

  /** @param written a write to the caller was taken, after so many milliseconds; 0 without a look at the clock for one that did not wait */
  constructor(caller: TunnelEnd, destination: TunnelEnd, written: (ms: number) => void = () => {}) {
    this.#ends = { caller, destination };
    this.#watch('caller', destination);
    this.#watch('destination', caller);
    this.#copy(caller, destination, (bytes) => {
      this.up += bytes;
    });
    const down = (bytes: number) => {
      this.down += bytes;
    };
    this.#copy(destination, caller, down, written);
  }

  /** Bytes that wait in both directions' writers. */
  get queued(): number {
    const { caller, destination } = this.#ends;
    return caller.stream.writableLength + destination.stream.writableLength;
  }

  /** Ends both sides at once; what is queued is lost. */
  abort(reason: Error): void {
    this.#result ??= { closedBy: 'plane', error: reason };
    this.#ends.caller.abort(reason);
    this.#ends.destination.abort(reason);
  }

  #copy(
    from: TunnelEnd,
    to: TunnelEnd,
    count: (bytes: number) => void,
    written: (ms: number) => void = () => {},
  ): void {
    const source = from.stream;
    const sink = to.stream;
    const write =
      sink instanceof Socket
        ? (chunk: Uint8Array) => writeGathered(sink, chunk)
        : (chunk: Uint8Array) => sink.write(chunk);
    let waitingSince: number | undefined;
    source.on('data', (chunk: Uint8Array) => {
      count(chunk.length);
      youngGarbage.read(chunk.length);
      if (this.#timerMs === HALF_CLOSED_IDLE_MS) this.#timer?.refresh();
      if (write(chunk)) return written(0);
      waitingSince ??= performance.now();
      source.pause();
    });
    sink.on('drain', () => {
      if (waitingSince !== undefined) written(performance.now() - waitingSince);
      waitingSince = undefined;
      source.resume();
    });
  }

  #watch(side: Side, other: TunnelEnd): void {
    const { stream, halfOpen } = this.#ends[side];
    let failure: Error | undefined;
    stream.on('error', (error) => {
      failure ??= error;
    });
    stream.on('end', () => {
      this.#ended.add(side);
      this.#result ??= { closedBy: side };
      other.stream.end();
      if (halfOpen) this.#arm(HALF_CLOSED_IDLE_MS);
      else this.#awaitClose(other.stream);
    });
    const closed = () => this.#closed(side, failure);
    if (stream.destroyed) queueMicrotask(closed);
    else stream.once('close', closed);
  }

  /** A side is gone. If it went in good order, the other still gets what was written to it; else it ends at once. */
  #closed(side: Side, failure: Error | undefined): void {
    if (!this.#open.delete(side)) return;
    const orderly = failure === undefined && this.#ended.has(side);
    if (!orderly) this.#fail(side, failure ?? new Error(`${side} went away`));
    if (this.#open.size > 0) {
      const [left] = this.#open;
      if (orderly && left) this.#awaitClose(this.#ends[left].stream);
      return;
    }
    clearTimeout(this.#timer);
    this.#done.resolve(this.#result ?? { closedBy: side });
  }

  #fail(side: Side, error: Error): void {
    const closedBy = error instanceof SessionLost ? 'plane' : side;
    if (this.#result?.error === undefined) this.#result = { closedBy: this.#result?.closedBy ?? closedBy, error };
    for (const open of this.#open) this.#ends[open].abort(error);
  }

  /** The other side is done for good: a slow reader still gets what was written to it, and from then on its time counts. */
  #awaitClose(stream: Duplex): void {
    this.#arm(stream.writableFinished ? LINGER_MS : HALF_CLOSED_IDLE_MS);
    if (!stream.writableFinished) stream.once('finish', () => this.#arm(LINGER_MS));
  }

  /** One timer a tunnel, and only from its first end on. */
  #arm(ms: number): void {
    clearTimeout(this.#timer);
    if (this.#open.size === 0) return;
    this.#timerMs = ms;
    this.#timer = setTimeout(() => {
      const overdue = new Error(ms === LINGER_MS ? 'peer did not finish closing' : 'half-closed and silent');
      for (const open of this.#open) this.#ends[open].abort(overdue);
    }, ms);
    this.#timer.unref();
  }
}
