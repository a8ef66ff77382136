import type { Duplex } from 'node:stream';
import type { GatewayLoss } from '@isthmus/tunnel';
import { Allowance, ConnectionError, ErrorCode, isRecord, type ReconcileMessage, readReconcile } from '@isthmus/wire';
import { Pieces } from '../head/pieces.ts';
import { type CredentialMessage, type RenewedMessage, readCredential } from './credential.ts';
import { isInstance } from './instance.ts';
import { type MembershipMessage, readMembership } from './membership.ts';
import { type PolicyMessage, readPolicy } from './policy.ts';

/** What the two ends of a link tell each other besides the tunnels. */
export type ControlMessage =
  /**
   * From the serving side: send new dials elsewhere if there are other sessions. From the dialling side: it is about to close, so open
   * another link first.
   */
  | { readonly type: 'drain' }
  | ReconcileMessage
  /** To an agent: the plane's hubs, at the start of the link and whenever they change. */
  | MembershipMessage
  | PolicyMessage
  /** To an agent: the hub has lost its connection to a gateway's process, which did not say goodbye. */
  | ({ readonly type: 'hung-up' } & GatewayLoss)
  | CredentialMessage
  | RenewedMessage;

/** A message is one line of JSON, at most this long, in bytes. */
const MAX_LINE = 256 * 1024;

const LINE_END = 0x0a;

/**
 * How many messages a link accepts at once, and per second. A message takes about 20 microseconds. So a burst takes 20 ms, and the
 * messages after it take two thousandths of a processor. Hubs send changes at most ten times a second, even if thousands of hubs restart.
 */
const MESSAGES_AT_ONCE = 1_000;
const MESSAGES_PER_SECOND = 100;

/** Each of these many bytes makes a message cost as much as one more. */
const BYTES_A_MESSAGE = 2 * 1024;

/** How much may wait for a peer that does not read, in bytes. Beyond that, the link is useless. */
const MAX_BACKLOG = 4 * 1024 * 1024;

/** Encodes a message once for many links. */
export function encodeControl(message: ControlMessage): string {
  return `${JSON.stringify(message)}\n`;
}

export interface ControlOptions {
  /** Called with each message. */
  readonly receive: (message: ControlMessage) => void;
  /** Called if a message of a known type could not be read, perhaps because a later version writes it differently. It is skipped. */
  readonly refused: (error: Error) => void;
  /** Called when the receiver throws something other than a ConnectionError. That is a defect, which should end the link. */
  readonly fault: (error: Error) => void;
  /** Called when the peer broke the protocol or does not read. The link should end. */
  readonly fail: (error: Error) => void;
}

/** The control stream of a link: newline-delimited JSON in both directions on one HTTP/2 stream. */
export class Control {
  readonly #stream: Duplex;
  readonly #options: ControlOptions;
  /** The start of a line whose end has not arrived. */
  readonly #begun = new Pieces();
  readonly #allowance = new Allowance({ atOnce: MESSAGES_AT_ONCE, perSecond: MESSAGES_PER_SECOND });

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

  /** Searches only new data for the ends of lines, and decodes a line once it is complete. */
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

  /** Returns whether to read on. Throws ConnectionError if there were too many messages. */
  #take(bytes: Buffer): boolean {
    if (!this.#allowance.spend(1 + bytes.length / BYTES_A_MESSAGE))
      throw new ConnectionError(
        ErrorCode.ENHANCE_YOUR_CALM,
        `more control messages than ${MESSAGES_AT_ONCE} at once and ${MESSAGES_PER_SECOND} a second`,
      );
    const { receive, refused, fail } = this.#options;
    const line = bytes.toString();
    const head = parse(line);
    const message = head && read(head);
    // A token that could not be read is a secret all the same.
    const shown = head?.type === 'credential' ? 'credential' : line.slice(0, 100);
    const bad = () => new Error(`bad control message ${JSON.stringify(shown)}`);
    if (message) receive(message);
    else if (head) refused(bad());
    else fail(bad());
    return head !== undefined;
  }
}

type Head = Readonly<Record<string, unknown>> & { readonly type: string };

/** Returns one line as an object with a type, or undefined if it is none. */
function parse(line: string): Head | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return isRecord(value) && typeof value.type === 'string' ? (value as Head) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Checks a message of a known type, because the peer may run any software. Returns undefined if it is malformed. Unknown types come
 * from later versions, and the receiver skips them.
 */
function read(value: Head): ControlMessage | undefined {
  const { type } = value;
  if (type === 'membership' || type === 'membership-change') return readMembership(value);
  if (type === 'policy') return readPolicy(value);
  if (type === 'credential') return readCredential(value);
  if (type === 'held' || type === 'lacking') return readReconcile(value);
  if (type === 'hung-up') return readHungUp(value);
  return value as ControlMessage;
}

/** A hub of an earlier version does not say whether the connection was reset. */
function readHungUp({ gateway, reset = false }: Head): ControlMessage | undefined {
  const readable = typeof gateway === 'string' && isInstance(gateway) && typeof reset === 'boolean';
  return readable ? { type: 'hung-up', gateway, reset } : undefined;
}
