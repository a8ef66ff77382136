import type { Duplex } from 'node:stream';
import { Allowance, ConnectionError, ErrorCode } from '@isthmus/http2';
import { Pieces } from '../head/pieces.ts';
import { isRecord } from './json.ts';
import { type MembershipMessage, readMembership } from './membership.ts';
import { type ReconcileMessage, readReconcile } from './reconcile.ts';

/** What the two ends of a link tell each other beside the tunnels. */
export type ControlMessage =
  /**
   * From the side that serves dials: send new ones elsewhere while there is an elsewhere. From the side that dials: it goes
   * away; get another link first.
   */
  | { readonly type: 'drain' }
  | ReconcileMessage
  /** To an agent: the hubs of the plane, at the link's start and whenever they change. */
  | MembershipMessage;

/** A message is one line of JSON, at most this long, in bytes. */
const MAX_LINE = 256 * 1024;

const LINE_END = 0x0a;

/**
 * Messages that a link takes at once, and a second. Reading one and acting on it is about 20 microseconds of ours: a burst is 20 ms, and a
 * link takes two thousandths of a processor by them. Hubs tell of changes ten times a
 * second at most: what thousands of them say that all restart at once is within it.
 */
const AT_ONCE = 1_000;
const PER_SECOND = 100;

/** So many bytes of a message cost as much as another one. */
const BYTES_A_MESSAGE = 2 * 1024;

/** What a peer that does not read may hold back, in bytes; beyond it the link is beyond use. */
const MAX_BACKLOG = 4 * 1024 * 1024;

/** A message as it goes over the wire, for one that goes to many links. */
export function encodeControl(message: ControlMessage): string {
  return `${JSON.stringify(message)}\n`;
}

export interface ControlOptions {
  /** One message. */
  readonly receive: (message: ControlMessage) => void;
  /** A message of a known type could not be read, perhaps since a later version writes it otherwise: it is passed over. */
  readonly refused: (error: Error) => void;
  /** Called when the receiver threw something other than a ConnectionError: a defect, which should end the link. */
  readonly fault: (error: Error) => void;
  /** The peer broke the protocol, or does not read: the link should end. */
  readonly fail: (error: Error) => void;
}

/** The control stream of a link: newline-delimited JSON both ways on one HTTP/2 stream. */
export class Control {
  readonly #stream: Duplex;
  readonly #options: ControlOptions;
  /** Of a line whose end has yet to come. */
  readonly #begun = new Pieces();
  readonly #allowance = new Allowance({ atOnce: AT_ONCE, perSecond: PER_SECOND });

  constructor(stream: Duplex, options: ControlOptions) {
    this.#stream = stream;
    this.#options = options;
    stream.on('error', () => {});
    stream.on('data', (chunk: Buffer) => {
      try {
        this.#read(chunk);
      } catch (error) {
        if (error instanceof ConnectionError) options.fail(error);
        else options.fault(error as Error);
      }
    });
  }

  send(message: ControlMessage): void {
    this.sendLine(encodeControl(message));
  }

  /** @param line from `encodeControl` */
  sendLine(line: string): void {
    if (this.#stream.destroyed || this.#stream.writableEnded) return;
    this.#stream.write(line);
    if (this.#stream.writableLength > MAX_BACKLOG) this.#options.fail(new Error('peer does not read control messages'));
  }

  /** Only what came last is searched for the ends of lines, and a line is decoded once it is whole. */
  #read(chunk: Buffer): void {
    let start = 0;
    for (let end = chunk.indexOf(LINE_END); end >= 0; end = chunk.indexOf(LINE_END, start)) {
      this.#begun.add(chunk.subarray(start, end));
      start = end + 1;
      if (!this.#isShort() || !this.#take(this.#begun.take())) return;
    }
    if (start < chunk.length) this.#begun.add(chunk.subarray(start));
    this.#isShort();
  }

  #isShort(): boolean {
    if (this.#begun.length <= MAX_LINE) return true;
    this.#options.fail(new Error('control message too long'));
    return false;
  }

  /**
   * @returns whether more may be read
   * @throws ConnectionError when there were too many
   */
  #take(bytes: Buffer): boolean {
    if (!this.#allowance.spend(1 + bytes.length / BYTES_A_MESSAGE))
      throw new ConnectionError(
        ErrorCode.ENHANCE_YOUR_CALM,
        `too many control messages: ${AT_ONCE} at once and ${PER_SECOND} a second are taken`,
      );
    const { receive, refused, fail } = this.#options;
    const line = bytes.toString();
    const head = parse(line);
    const message = head && read(head);
    const bad = () => new Error(`bad control message ${JSON.stringify(line.slice(0, 100))}`);
    if (message) receive(message);
    else if (head) refused(bad());
    else fail(bad());
    return head !== undefined;
  }
}

type Head = Readonly<Record<string, unknown>> & { readonly type: string };

/** One line as an object with a type; undefined when it is none. */
function parse(line: string): Head | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return isRecord(value) && typeof value.type === 'string' ? (value as Head) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * What a known type carries is checked, for the peer may be of any make; undefined when it does not hold. Unknown types are
 * of a later version: whoever receives them passes them over.
 */
function read(value: Head): ControlMessage | undefined {
  const { type } = value;
  if (type === 'membership' || type === 'membership-change') return readMembership(value);
  if (type === 'held' || type === 'lacking') return readReconcile(value);
  return value as ControlMessage;
}
