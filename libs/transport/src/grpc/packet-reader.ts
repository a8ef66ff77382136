import { decodeDataHead, decodePacket, type Packet } from '@isthmus/proto';
import { SharedBudget } from '@isthmus/runtime';
import { MessageReader } from './messages.ts';
import { StatusError } from './status.ts';

/**
 * Up to this length, a message is kept until it is complete. With half of the smallest window (64 KiB, at callers) read and not yet
 * given back, there is still room for it.
 */
const WHOLE_MESSAGE = 16 * 1024;

/** The length of each part of a longer message, except the last: a peer that sends single bytes must not make a packet of each. */
const MESSAGE_PART = 4 * 1024;

/** The longest message of another kind, in bytes. No sensible message comes near, and a longer one is answered with an error. */
const LONGEST_OTHER = 128 * 1024;

/** What all streams together may keep of such messages beyond their windows, in received bytes. An announced length takes no room. */
const OTHERS = new SharedBudget(16 * 1024 * 1024);

/** The most bytes of a DATA packet without its data: two tags, two lengths and a number are 44 bytes at most. */
const DATA_HEAD = 64;

/**
 * Cuts the bytes of a stream into packets. It passes the data of a long message on as it arrives, in packets of its own: to keep it
 * until it is complete would take 4 MiB for each stream, and no window has room for that.
 */
export class PacketReader {
  readonly #messages: MessageReader;
  /** State of a long message that is arriving. */
  #connectID: bigint | undefined;
  /** Whether the message that is arriving is a long one of another kind. */
  #isOther = false;
  /** Bytes of it that are counted in the budget. */
  #lent = 0;

  /** @param mostBytes the longest message */
  constructor(mostBytes: number) {
    this.#messages = new MessageReader(mostBytes);
  }

  /** Whether no part of a message is left. */
  get empty(): boolean {
    return this.#messages.empty;
  }

  /** Received bytes that were not taken, as far as they count against the stream's window. */
  get held(): number {
    return this.#messages.length - this.#lent;
  }

  add(piece: Buffer): void {
    this.#messages.add(piece);
  }

  /** Call when nothing more is read. */
  close(): void {
    OTHERS.give(this.#lent);
    this.#lent = 0;
    this.#isOther = false;
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
    const isUnknown = this.#connectID === undefined && !this.#isOther;
    if (isUnknown && expected > WHOLE_MESSAGE) {
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

  /** The window gets back what the budget has room for: otherwise a message longer than the window would never be complete. */
  #lend(expected: number): void {
    const more = this.#messages.length - this.#lent;
    if (!OTHERS.take(more))
      throw new StatusError(
        'ResourceExhausted',
        `no memory is left for a message of ${expected} bytes that is not DATA`,
      );
    this.#lent += more;
  }

  #readHead(expected: number): void {
    const head = decodeDataHead(this.#messages.peek(DATA_HEAD), expected);
    if (head) {
      this.#messages.part(head.length);
      this.#connectID = head.connectID;
    } else if (expected <= LONGEST_OTHER) this.#isOther = true;
    else
      throw new StatusError(
        'ResourceExhausted',
        `received a message of ${expected} bytes that is not DATA; at most ${LONGEST_OTHER} are allowed`,
      );
  }

  #part(connectID: bigint): Packet | undefined {
    const messages = this.#messages;
    const left = messages.expected as number;
    const least = Math.min(left, MESSAGE_PART);
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
