import { WindowBudget } from '@isthmus/http2';
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

/** A message of another kind may be so long, in bytes: nothing that makes sense comes near, and what makes none is answered. */
const LONGEST_OTHER = 128 * 1024;

/** What all streams together may keep of such messages beyond their windows, in bytes that came: an announced length takes no room. */
const OTHERS = new WindowBudget(16 * 1024 * 1024);

/** All of a DATA packet but its data: two tags, two lengths and a number are 44 bytes at most. */
const DATA_HEAD = 64;

/**
 * Cuts what comes on a stream into packets. The data of a long message is handed on as it comes, as packets of their own: kept until
 * it is whole, 4 MiB of each stream would be, for which no window has room.
 */
export class PacketReader {
  readonly #messages: MessageReader;
  /** Of the long message under way. */
  #connectID: bigint | undefined;
  /** The message under way is a long one of another kind. */
  #isOther = false;
  /** Of the budget, for what came of it. */
  #lent = 0;

  /** @param mostBytes what a message may come to */
  constructor(mostBytes: number) {
    this.#messages = new MessageReader(mostBytes);
  }

  /** Nothing is left of a message. */
  get empty(): boolean {
    return this.#messages.empty;
  }

  /** Bytes that came and were not taken, as far as they count for the stream's window. */
  get held(): number {
    return this.#messages.length - this.#lent;
  }

  add(piece: Buffer): void {
    this.#messages.add(piece);
  }

  /** Nothing more is read. */
  close(): void {
    OTHERS.give(this.#lent);
    this.#lent = 0;
    this.#isOther = false;
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
    const isUnknown = this.#connectID === undefined && !this.#isOther;
    if (isUnknown && expected > WHOLE) {
      if (messages.length < DATA_HEAD) return undefined;
      this.#readHead(expected);
    }
    if (this.#connectID !== undefined) return this.#part(this.#connectID);
    const message = messages.next();
    if (!message) {
      if (this.#isOther) this.#lend(expected);
      return undefined;
    }
    this.close();
    return read(message);
  }

  /** The window is given back what the budget has room for, or a message longer than the window would never come whole. */
  #lend(expected: number): void {
    const more = this.#messages.length - this.#lent;
    if (!OTHERS.take(more))
      throw new StatusError('ResourceExhausted', `no room for a message of ${expected} bytes that is no DATA`);
    this.#lent += more;
  }

  #readHead(expected: number): void {
    const head = decodeDataHead(this.#messages.peek(DATA_HEAD), expected);
    if (head) {
      this.#messages.part(head.length);
      this.#connectID = head.connectID;
    } else if (expected <= LONGEST_OTHER) this.#isOther = true;
    else throw new StatusError('ResourceExhausted', `received message of ${expected} bytes that is no DATA`);
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
