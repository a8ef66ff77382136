import { decodeDataHead, decodePacket, type Packet } from '@isthmus/proto';
import { pins } from '@isthmus/runtime';
import { type Config, WIRE } from '../defaults.ts';
import { StatusError } from './status.ts';

/** Before each message: a flag that says whether it is compressed, and its length (gRPC over HTTP/2, "Length-Prefixed-Message"). */
export const PREFIX = 5;

const NO_BLOCK = Buffer.alloc(0);

/** Cuts the bytes of a stream into messages. A message in one piece is a view of it; any other is copied once. */
export class MessageReader {
  readonly #config: Config;
  /** Received pieces that were not taken, in order. */
  readonly #pieces: Buffer[] = [];
  #length = 0;
  /** The block for small pieces, and how much of it is used. */
  #block: Buffer = NO_BLOCK;
  #used = 0;
  /** Length of the message whose prefix was taken. */
  #expected: number | undefined;

  constructor(config: Config = WIRE) {
    this.#config = config;
  }

  /** Whether no part of a message is left. */
  get empty(): boolean {
    return this.#length === 0 && this.#expected === undefined;
  }

  /** Received bytes that were not taken. */
  get length(): number {
    return this.#length;
  }

  add(piece: Buffer): void {
    this.#length += piece.length;
    this.#pieces.push(piece);
  }

  /** Call if the rest has to wait: it must not keep the block of memory that it arrived in, which may be thousands of times as long. */
  hold(): void {
    const last = this.#pieces.at(-1);
    if (!last || last.buffer === this.#block.buffer || !pins(last)) return;
    this.#pieces.pop();
    if (last.length < this.#config.smallPieceBytes) this.#append(last);
    else this.#pieces.push(copyOf(last));
  }

  /** Returns the length of the next message once its prefix has arrived. Throws StatusError if it is not accepted. */
  get expected(): number | undefined {
    if (this.#expected === undefined && this.#length >= PREFIX) {
      this.#expected = this.#readPrefix(this.#take(PREFIX));
    }
    return this.#expected;
  }

  /** Returns the next message, or undefined until it is complete. Throws StatusError if it is not accepted. */
  next(): Buffer | undefined {
    const { expected } = this;
    return expected === undefined || this.#length < expected ? undefined : this.part(expected);
  }

  /** Takes the next bytes of a message, which must have arrived. */
  part(length: number): Buffer {
    const left = (this.#expected as number) - length;
    this.#expected = left > 0 ? left : undefined;
    return this.#take(length);
  }

  /** Returns the first received bytes: as many as are in one piece, and at least this many if they have arrived. */
  peek(atLeast: number): Buffer {
    const [first = NO_BLOCK] = this.#pieces;
    if (first.length >= atLeast || first.length === this.#length) return first;
    const joined = this.#take(Math.min(atLeast, this.#length));
    this.#length += joined.length;
    this.#pieces.unshift(joined);
    return joined;
  }

  /** Answers as Go's servers do. */
  #readPrefix(prefix: Buffer): number {
    const flag = prefix[0];
    if (flag === 1) throw new StatusError('Internal', 'grpc: compressed flag set with identity or empty encoding');
    if (flag !== 0) throw new StatusError('Internal', `grpc: received unexpected payload format ${flag}`);
    const length = prefix.readUInt32BE(1);
    if (length > this.#config.messageBytes) {
      const text = `grpc: received message larger than max (${length} vs. ${this.#config.messageBytes})`;
      throw new StatusError('ResourceExhausted', text);
    }
    return length;
  }

  /** Copies a small piece behind the last one, if that is in the block and there is room; otherwise copies both into a larger block. */
  #append(piece: Buffer): void {
    const last = this.#pieces.at(-1);
    const needed = piece.length + (last?.length ?? 0);
    const follows = last?.buffer === this.#block.buffer && last.byteOffset + last.length === this.#used;
    if (last && follows && this.#used + piece.length <= this.#block.length) {
      this.#used += piece.copy(this.#block, this.#used);
      this.#pieces[this.#pieces.length - 1] = this.#block.subarray(last.byteOffset, this.#used);
      return;
    }
    const joins = last !== undefined && needed <= this.#config.lastBlockBytes / 2;
    const size = Math.min(
      this.#config.lastBlockBytes,
      Math.max(this.#config.firstBlockBytes, 2 * (joins ? needed : piece.length)),
    );
    this.#block = Buffer.allocUnsafeSlow(size);
    this.#used = joins ? last.copy(this.#block) : 0;
    this.#used += piece.copy(this.#block, this.#used);
    if (joins) this.#pieces.pop();
    this.#pieces.push(this.#block.subarray(0, this.#used));
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

function copyOf(piece: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(piece.length);
  piece.copy(copy);
  return copy;
}

/** Fills in the prefix of a message, for which there is room at `offset`. */
export function writePrefix(bytes: Buffer, length: number): void {
  bytes[0] = 0;
  bytes.writeUInt32BE(length, 1);
}

/** The most bytes of a DATA packet without its data: two tags, two lengths and a number are 44 bytes at most. */
const DATA_HEAD = 64;

/**
 * Cuts the bytes of a stream into packets. It passes the data of a long message on as it arrives, in packets of its own: to keep it
 * until it is complete would take 4 MiB for each stream, and no window has room for that.
 */
export class PacketReader {
  readonly #messages: MessageReader;
  readonly #config: Config;
  /** State of a long message that is arriving. */
  #connectID: bigint | undefined;

  /** @param mostBytes the longest message */
  constructor(config: Config = WIRE) {
    this.#config = config;
    this.#messages = new MessageReader(config);
  }

  /** Whether no part of a message is left. */
  get empty(): boolean {
    return this.#messages.empty;
  }

  /** Received bytes that were not taken. They count against the stream's window. */
  get held(): number {
    return this.#messages.length;
  }

  add(piece: Buffer): void {
    this.#messages.add(piece);
  }

  /** Call if the rest has to wait for more, or for its reader. */
  hold(): void {
    this.#messages.hold();
  }

  /** Returns the next packet, or undefined until it has arrived. Throws StatusError for what is not a packet. */
  next(): Packet | undefined {
    const messages = this.#messages;
    const { expected } = messages;
    if (expected === undefined) return undefined;
    if (this.#connectID === undefined && expected > this.#config.wholeMessageBytes) {
      if (messages.length < DATA_HEAD) return undefined;
      this.#readHead(expected);
    }
    if (this.#connectID !== undefined) return this.#part(this.#connectID);
    const message = messages.next();
    return message && read(message);
  }

  #readHead(expected: number): void {
    const head = decodeDataHead(this.#messages.peek(DATA_HEAD), expected);
    if (!head)
      throw new StatusError(
        'ResourceExhausted',
        `received a message of ${expected} bytes that is not DATA; at most ${this.#config.wholeMessageBytes} are allowed`,
      );
    this.#messages.part(head.length);
    this.#connectID = head.connectID;
  }

  #part(connectID: bigint): Packet | undefined {
    const messages = this.#messages;
    const left = messages.expected as number;
    const least = Math.min(left, this.#config.messagePartBytes);
    if (messages.length < least) return undefined;
    const data = messages.part(Math.min(left, messages.peek(least).length));
    if (data.length === left) this.#connectID = undefined;
    return { type: 'DATA', connectID, error: '', data };
  }
}

function read(message: Buffer): Packet {
  try {
    return decodePacket(message);
  } catch (error) {
    throw new StatusError('InvalidArgument', `bad packet: ${(error as Error).message}`);
  }
}
