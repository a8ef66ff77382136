import { youngGarbage } from '@isthmus/tunnel';
import { StatusError } from './status.ts';

/** Before each message: a flag that says whether it is compressed, and its length (gRPC over HTTP/2, "Length-Prefixed-Message"). */
export const PREFIX = 5;

/** Pieces of fewer bytes are put together while others wait: each would cost more than it holds. */
const SMALL = 4 * 1024;
const BLOCK = 16 * 1024;

const NO_BLOCK = Buffer.alloc(0);

/** Cuts what comes on a stream into messages. One that lies in one piece is a view of it, another is copied once. */
export class MessageReader {
  readonly #mostBytes: number;
  /** What came and was not taken, in order. */
  readonly #pieces: Buffer[] = [];
  #length = 0;
  /** Where small pieces are put, and how much of it is taken. */
  #block: Buffer = NO_BLOCK;
  #used = 0;
  /** Length of the message whose prefix was taken. */
  #expected: number | undefined;

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
  }

  /** Nothing is left of a message. */
  get empty(): boolean {
    return this.#length === 0 && this.#expected === undefined;
  }

  /** Bytes that came and were not taken. */
  get length(): number {
    return this.#length;
  }

  add(piece: Buffer): void {
    this.#length += piece.length;
    if (piece.length >= SMALL || this.#pieces.length === 0) this.#pieces.push(piece);
    else this.#append(piece);
  }

  /**
   * @returns the next message, or undefined while it has not come whole
   * @throws StatusError for what we do not take
   */
  next(): Buffer | undefined {
    if (this.#expected === undefined) {
      if (this.#length < PREFIX) return undefined;
      this.#expected = this.#readPrefix(this.#take(PREFIX));
    }
    if (this.#length < this.#expected) return undefined;
    const message = this.#take(this.#expected);
    this.#expected = undefined;
    return message;
  }

  /** As Go's servers answer. */
  #readPrefix(prefix: Buffer): number {
    const flag = prefix[0];
    if (flag === 1) throw new StatusError('Internal', 'grpc: compressed flag set with identity or empty encoding');
    if (flag !== 0) throw new StatusError('Internal', `grpc: received unexpected payload format ${flag}`);
    const length = prefix.readUInt32BE(1);
    if (length > this.#mostBytes) {
      const text = `grpc: received message larger than max (${length} vs. ${this.#mostBytes})`;
      throw new StatusError('ResourceExhausted', text);
    }
    return length;
  }

  /** Copies a small piece behind the last, if that lies in the block and there is room. */
  #append(piece: Buffer): void {
    const last = this.#pieces.length - 1;
    const before = this.#pieces[last] as Buffer;
    const start = before.byteOffset - this.#block.byteOffset;
    const follows = before.buffer === this.#block.buffer && start + before.length === this.#used;
    const fits = this.#used + piece.length <= this.#block.length;
    if (!fits) {
      youngGarbage.read(BLOCK);
      this.#block = Buffer.allocUnsafeSlow(BLOCK);
      this.#used = 0;
    }
    const from = follows && fits ? start : this.#used;
    this.#used += piece.copy(this.#block, this.#used);
    const view = this.#block.subarray(from, this.#used);
    if (follows && fits) this.#pieces[last] = view;
    else this.#pieces.push(view);
  }

  #take(length: number): Buffer {
    this.#length -= length;
    const first = this.#pieces[0];
    if (first && first.length > length) {
      this.#pieces[0] = first.subarray(length);
      return first.subarray(0, length);
    }
    if (first && first.length === length) {
      this.#pieces.shift();
      return first;
    }
    return this.#join(length);
  }

  #join(length: number): Buffer {
    const whole = Buffer.allocUnsafe(length);
    youngGarbage.read(length);
    for (let filled = 0; filled < length; ) {
      const piece = this.#pieces[0] as Buffer;
      const taken = piece.copy(whole, filled);
      filled += taken;
      if (taken === piece.length) this.#pieces.shift();
      else this.#pieces[0] = piece.subarray(taken);
    }
    return whole;
  }
}

/** Fills in the prefix of a message, for which room was left at `offset`. */
export function writePrefix(bytes: Buffer, length: number): void {
  bytes[0] = 0;
  bytes.writeUInt32BE(length, 1);
}
