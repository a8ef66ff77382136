import { decodeDataHead, decodePacket, type Packet } from '@isthmus/proto';
import { Packing } from '@isthmus/runtime';
import { type Config, WIRE } from '../defaults.ts';
import { StatusError } from './status.ts';

/** Before each message: a flag that says whether it is compressed, and its length (gRPC over HTTP/2, "Length-Prefixed-Message"). */
export const PREFIX = 5;

const NONE = Buffer.alloc(0);

/** Cuts the bytes of a stream into messages. A message in one piece is a view of it; any other is copied once. */
export class MessageReader {
  protected readonly config: Config;
  /** Received pieces that were not taken, in order. */
  readonly #pieces: Buffer[] = [];
  #packing = new Packing();
  /** Received bytes that were not taken. Those of a call count against its stream's window. Its own methods alone change it. */
  length = 0;
  /** Length of the message whose prefix was taken. */
  #expected: number | undefined;

  constructor(config: Config = WIRE) {
    this.config = config;
  }

  /** Whether no part of a message is left. */
  get empty(): boolean {
    return this.length === 0 && this.#expected === undefined;
  }

  add(piece: Buffer): void {
    this.length += piece.length;
    this.#pieces.push(piece);
  }

  /** Call after each piece, once nothing more of it is taken for now: the rest is kept at its own cost. */
  keep(): void {
    const piece = this.#pieces.pop();
    if (!piece) return;
    const at = this.#pieces.length - 1;
    const last = this.#pieces[at];
    if (!last) this.#packing = new Packing();
    const more = last && this.#packing.extend(last, piece);
    if (more) this.#pieces[at] = more as Buffer;
    else this.#pieces.push(this.#packing.begin(piece) as Buffer);
  }

  /** Reads the length of the next message, once its prefix has arrived. Throws StatusError if it is not accepted. */
  readLength(): number | undefined {
    if (this.#expected !== undefined || this.length < PREFIX) return this.#expected;
    const prefix = this.#take(PREFIX);
    const flag = prefix[0];
    const length = prefix.readUInt32BE(1);
    // Go's servers answer so.
    if (flag === 1) throw new StatusError('Internal', 'grpc: compressed flag set with identity or empty encoding');
    if (flag !== 0) throw new StatusError('Internal', `grpc: received unexpected payload format ${flag}`);
    if (length > this.config.messageBytes) {
      const text = `grpc: received message larger than max (${length} vs. ${this.config.messageBytes})`;
      throw new StatusError('ResourceExhausted', text);
    }
    this.#expected = length;
    return length;
  }

  /** Returns the next message, or undefined until it is complete. Throws StatusError if it is not accepted. */
  next(): Buffer | undefined {
    const expected = this.readLength();
    return expected === undefined || this.length < expected ? undefined : this.part(expected);
  }

  /** Takes the next bytes of a message, which must have arrived. */
  part(length: number): Buffer {
    const left = (this.#expected as number) - length;
    this.#expected = left > 0 ? left : undefined;
    return this.#take(length);
  }

  /** Returns the first received bytes: as many as are in one piece, and at least this many if they have arrived. */
  peek(atLeast: number): Buffer {
    const [first = NONE] = this.#pieces;
    const least = Math.min(atLeast, this.length);
    return first.length >= least ? first : Buffer.concat(this.#pieces, least);
  }

  /** Takes the first received bytes, which must have arrived. */
  #take(length: number): Buffer {
    const [piece = NONE] = this.#pieces;
    const taken = piece.length < length ? Buffer.concat(this.#pieces, length) : piece.subarray(0, length);
    this.length -= length;
    let left = length;
    for (let first = this.#pieces[0]; first && first.length <= left; [first] = this.#pieces) {
      left -= first.length;
      this.#pieces.shift();
    }
    if (left > 0) this.#pieces[0] = (this.#pieces[0] as Buffer).subarray(left);
    return taken;
  }
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
export class PacketReader extends MessageReader {
  /** Of the long message that is arriving. */
  #connectID: bigint | undefined;

  /** Returns the next packet, or undefined until it has arrived. Throws StatusError for what is not a packet. */
  nextPacket(): Packet | undefined {
    const expected = this.readLength();
    if (expected === undefined) return undefined;
    if (this.#connectID === undefined && expected > this.config.wholeMessageBytes) {
      if (this.length < DATA_HEAD) return undefined;
      this.#readHead(expected);
    }
    if (this.#connectID !== undefined) return this.#nextPart(this.#connectID, this.readLength() as number);
    if (this.length < expected) return undefined;
    try {
      return decodePacket(this.part(expected));
    } catch (error) {
      throw new StatusError('InvalidArgument', `bad packet: ${(error as Error).message}`);
    }
  }

  #readHead(expected: number): void {
    const head = decodeDataHead(this.peek(DATA_HEAD), expected);
    if (!head)
      throw new StatusError(
        'ResourceExhausted',
        `received a message of ${expected} bytes that is not DATA; at most ${this.config.wholeMessageBytes} are allowed`,
      );
    this.part(head.length);
    this.#connectID = head.connectID;
  }

  /** @param left how much is left of its message */
  #nextPart(connectID: bigint, left: number): Packet | undefined {
    const least = Math.min(left, this.config.messagePartBytes);
    if (this.length < least) return undefined;
    const data = this.part(Math.min(left, this.peek(least).length));
    if (data.length === left) this.#connectID = undefined;
    return { type: 'DATA', connectID, error: '', data };
  }
}
