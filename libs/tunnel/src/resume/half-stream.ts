import { MultiplexedDuplex } from '@isthmus/runtime';
import type { TunnelEnd } from '../dial.ts';
import type { HalfUser } from './carrier.ts';
import type { Half } from './half.ts';

/**
 * A half as a Duplex: the tunnel's end for a splice, as the stream of a link would be. The carriers below it may change. Its writing side
 * finishes once the other half has taken everything.
 */
export abstract class HalfStream extends MultiplexedDuplex implements HalfUser, TunnelEnd {
  abstract readonly half: Half;
  abstract readonly tenant: string;
  /** Whether the other side has ended while the reader still lacks bytes. The end follows them, because a Duplex reads nothing after its end. */
  #ends = false;

  constructor() {
    super();
    // The splice has its own listener. This one serves before and after it.
    this.on('error', ignore);
  }

  get stream(): this {
    return this;
  }

  get halfOpen(): boolean {
    return true;
  }

  delivered(then: () => void): void {
    this.half.whenTaken(then);
  }

  abort(reason: Error): void {
    this.half.abort(reason);
    // The half may have ended already, while its reader has not.
    this.destroy(reason);
  }

  // What the half calls.

  deliver(bytes: Uint8Array): void {
    this.received(bytes);
  }

  ended(): void {
    if (this.unread === 0) this.push(null);
    else this.#ends = true;
  }

  mayWrite(): void {
    this.sent();
  }

  flushed(): void {
    this.endSent();
  }

  over(error?: Error): void {
    if (error) this.destroy(error);
    else this.endSent();
  }

  abstract gone(): void;

  // What its Duplex asks for.

  protected override send(piece: Buffer): void {
    this.half.write(piece);
  }

  protected override get sending(): boolean {
    return !this.half.open;
  }

  protected override sendEnd(): void {
    this.half.finish();
  }

  protected override taken(bytes: number): void {
    if (this.#ends) this.push(null);
    this.half.take(bytes);
  }

  protected override awaitTurn(): void {
    this.half.awaitTurn(this);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    // A stream that has ended both ways is complete, even if the other half cannot be told yet.
    const complete = error === null && this.readableEnded && this.writableFinished;
    if (this.half.running && !complete) this.half.abort(error ?? new Error('it went away'));
    this.failWrite(error, 'the tunnel has ended');
    done(error);
    process.nextTick(forget, this);
  }
}

/**
 * Drops the listeners of a closed stream. Its half may still wait for the other half's end, and would meanwhile keep the listeners in
 * memory, with the splice and both sockets.
 */
function forget(stream: HalfStream): void {
  stream.removeAllListeners().on('error', ignore);
}

function ignore(): void {}
