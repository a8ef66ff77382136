import { decodeDataHead, decodePacket, type Packet } from '@isthmus/proto';
import { MessageReader } from './messages.ts';
import { StatusError } from './status.ts';

/**
 * Up to this length, a message is kept until it is complete. With half of the smallest window (64 KiB, at callers) read and not yet
 * given back, there is still room for it. No sensible message that is not DATA comes near, and a longer one is answered with an error.
 */
const WHOLE_MESSAGE = 16 * 1024;

/** The length of each part of a longer message, except the last: a peer that sends single bytes must not make a packet of each. */
const MESSAGE_PART = 4 * 1024;

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

  /** @param mostBytes the longest message */
  constructor(mostBytes: number) {
    this.#messages = new MessageReader(mostBytes);
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
    if (this.#connectID === undefined && expected > WHOLE_MESSAGE) {
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
        `received a message of ${expected} bytes that is not DATA; at most ${WHOLE_MESSAGE} are allowed`,
      );
    this.#messages.part(head.length);
    this.#connectID = head.connectID;
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
