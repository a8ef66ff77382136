import { decodeDataHead, decodePacket, type Packet } from '@isthmus/proto';
import { MessageReader } from './messages.ts';
import { StatusError } from './status.ts';

/**
 * A message of so many bytes is kept until it has come whole. With half of the smallest window read and not yet given back (64 KiB,
 * at callers) there is still room for it.
 */
const WHOLE = 16 * 1024;

/** Of a longer one each part has so many bytes, but for the last: a peer that sends byte for byte must not make a packet of each. */
const PART = 4 * 1024;

/** All of a DATA packet but its data: two tags, two lengths and a number are 44 bytes at most. */
const DATA_HEAD = 64;

/**
 * Cuts what comes on a stream into packets. The data of a long message is handed on as it comes, as packets of their own: kept until
 * it is whole, 4 MiB of each stream would be, for which no window has room. A long message of another kind is refused.
 */
export class PacketReader {
  readonly #messages: MessageReader;
  /** Of the long message under way. */
  #connectID: bigint | undefined;

  /** @param mostBytes what a message may come to */
  constructor(mostBytes: number) {
    this.#messages = new MessageReader(mostBytes);
  }

  /** Nothing is left of a message. */
  get empty(): boolean {
    return this.#messages.empty;
  }

  /** Bytes that came and were not taken. */
  get length(): number {
    return this.#messages.length;
  }

  add(piece: Buffer): void {
    this.#messages.add(piece);
  }

  /** What is left waits for more, or for its reader. */
  hold(): void {
    this.#messages.hold();
  }

  /**
   * @returns the next packet, or undefined while it has not come
   * @throws StatusError for what is none
   */
  next(): Packet | undefined {
    const messages = this.#messages;
    const { expected } = messages;
    if (expected === undefined) return undefined;
    if (this.#connectID === undefined) {
      if (expected <= WHOLE) {
        const message = messages.next();
        return message && read(message);
      }
      if (messages.length < DATA_HEAD) return undefined;
      this.#connectID = this.#readHead(expected);
    }
    return this.#part(this.#connectID);
  }

  #readHead(expected: number): bigint {
    const head = decodeDataHead(this.#messages.peek(DATA_HEAD), expected);
    if (!head) throw new StatusError('ResourceExhausted', `received message of ${expected} bytes that is no DATA`);
    this.#messages.part(head.length);
    return head.connectID;
  }

  #part(connectID: bigint): Packet | undefined {
    const messages = this.#messages;
    const left = messages.expected as number;
    const least = Math.min(left, PART);
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
