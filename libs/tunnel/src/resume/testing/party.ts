import type { AttachPosition, Outer } from '../carrier.ts';
import type { GatewayOuter } from '../gateway-half.ts';
import type { Half } from '../half.ts';
import type { SeededTime } from './seeded-time.ts';

/** Longer than any write, and no power of two, so that bytes at wrong positions differ. */
const PATTERN = Buffer.from(Array.from({ length: 65_521 }, (_, at) => (at * 40_503) >>> 7));

export interface PartyOptions {
  readonly time: SeededTime;
  /** How much it sends, in bytes, and the most at once. */
  readonly sends: number;
  readonly mostAtOnce: number;
  /** The longest time between two of its writes, and of its reads, in milliseconds. */
  readonly pauseMs: number;
}

/** A socket's user: it writes and reads at its own pace, and checks what it reads. */
export class Party implements Outer {
  readonly tenant = 'acme';
  readonly #options: PartyOptions;
  #half: Half | undefined;
  #sent = 0;
  #read = 0;
  #unread = 0;
  #waits = false;
  #sees = false;
  /** Whether it has ended its own direction, and seen the end of the other's. */
  finished = false;
  /** Unset until the tunnel is over; then its error, or `clean`. */
  outcome: Error | 'clean' | undefined;
  /** Whether its half is gone. */
  isGone = false;
  /** What must never happen. */
  readonly faults: string[] = [];

  constructor(options: PartyOptions) {
    this.#options = options;
  }

  get sends(): number {
    return this.#options.sends;
  }

  /** Bytes that it has read. */
  get read(): number {
    return this.#read;
  }

  get sawEnd(): boolean {
    return this.#sees;
  }

  begin(half: Half): void {
    this.#half = half;
    this.#later(() => this.#write());
  }

  deliver(bytes: Uint8Array): void {
    if (this.outcome) this.faults.push('it got bytes after the end of the tunnel');
    if (this.#sees) this.faults.push('it got bytes after the end of the other side');
    if (!sameAt(this.#read + this.#unread, bytes)) this.faults.push(`wrong bytes at ${this.#read + this.#unread}`);
    const waits = this.#unread > 0;
    this.#unread += bytes.length;
    if (waits) return;
    // As a socket does whose buffer has room.
    if (this.#options.time.chance(0.3)) this.#take();
    else this.#later(() => this.#take());
  }

  ended(): void {
    if (this.#sees) this.faults.push('it saw the end twice');
    this.#sees = true;
  }

  flowing(): void {
    if (!this.#waits) return;
    // As a bulk writer does.
    if (this.#options.time.chance(0.5)) this.#half?.awaitTurn(this);
    else this.writeMore();
  }

  writeMore(): void {
    if (!this.#waits) return;
    this.#waits = false;
    this.#later(() => this.#write());
  }

  flushed(): void {
    if (!this.finished) this.faults.push('its end arrived before it ended');
  }

  over(error?: Error): void {
    if (this.outcome) this.faults.push('it was told twice that the tunnel is over');
    this.outcome = error ?? 'clean';
  }

  gone(): void {
    if (this.isGone) this.faults.push('its half went twice');
    this.isGone = true;
  }

  /** Its socket fails. */
  fail(): void {
    if (!this.outcome) this.#half?.abort(new Error('the socket failed'));
  }

  #write(): void {
    const { time, sends, mostAtOnce } = this.#options;
    const half = this.#half as Half;
    if (this.outcome) return;
    if (this.#sent === sends) {
      this.finished = true;
      half.finish();
      return;
    }
    if (!half.open) {
      this.#waits = true;
      return;
    }
    const length = Math.min(sends - this.#sent, 1 + time.below(mostAtOnce));
    half.write(pattern(this.#sent, length));
    this.#sent += length;
    this.#later(() => this.#write());
  }

  #take(): void {
    const { time } = this.#options;
    if (this.outcome) return;
    const bytes = time.chance(0.5) ? this.#unread : 1 + time.below(this.#unread);
    this.#unread -= bytes;
    this.#read += bytes;
    if (this.#unread > 0) this.#later(() => this.#take());
    this.#half?.take(bytes);
  }

  #later(act: () => void): void {
    const { time, pauseMs } = this.#options;
    time.after(time.below(pauseMs), act);
  }
}

/** A caller, whose half asks for new carriers. */
export class GatewayParty extends Party implements GatewayOuter {
  /** Set before the half is used. */
  asks: (request: AttachPosition) => void = () => {};

  attach(request: AttachPosition): void {
    this.asks(request);
  }

  detached(): void {}
}

function pattern(position: number, length: number): Buffer {
  const at = position % PATTERN.length;
  const piece = PATTERN.subarray(at, at + length);
  return piece.length === length ? piece : Buffer.concat([piece, pattern(0, length - piece.length)]);
}

function sameAt(position: number, bytes: Uint8Array): boolean {
  return Buffer.compare(pattern(position, bytes.length), bytes) === 0;
}
