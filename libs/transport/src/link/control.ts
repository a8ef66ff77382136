import type { Duplex } from 'node:stream';
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
  /** The peer broke the protocol, or does not read: the link should end. */
  readonly fail: (error: Error) => void;
}

/** The control stream of a link: newline-delimited JSON both ways on one HTTP/2 stream. */
export class Control {
  readonly #stream: Duplex;
  readonly #fail: ControlOptions['fail'];

  constructor(stream: Duplex, { receive, refused, fail }: ControlOptions) {
    this.#stream = stream;
    this.#fail = fail;
    let rest = '';
    stream.setEncoding('utf8');
    stream.on('error', () => {});
    stream.on('data', (text: string) => {
      const lines = (rest + text).split('\n');
      rest = lines.pop() as string;
      if (rest.length > MAX_LINE) return fail(new Error('control message too long'));
      for (const line of lines) {
        const head = parse(line);
        const message = head && read(head);
        const bad = () => new Error(`bad control message ${JSON.stringify(line.slice(0, 100))}`);
        if (message) receive(message);
        else if (head) refused(bad());
        else return fail(bad());
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
    if (this.#stream.writableLength > MAX_BACKLOG) this.#fail(new Error('peer does not read control messages'));
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
