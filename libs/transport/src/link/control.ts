import type { Duplex } from 'node:stream';
import { getOrPut, isPrintable, LruMap } from '@isthmus/runtime';
import { CUT_BY, type CutBy, isName, parseDestination } from '@isthmus/tunnel';
import { Allowance, ConnectionError, ErrorCode } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import { Lines } from '../http1.ts';
import { isHexId } from './dial-heads.ts';

/** Names a gateway's process in the head of its control stream. */
export const GATEWAY_FIELD = 'isthmus-gateway';

/** Returns a field as it should be, or throws. */
type Reader<T> = (value: unknown) => T;

/** The names of those fields that may be left out. */
type Optional<Readers> = {
  [Name in keyof Readers]: Readers[Name] extends Reader<infer T> ? (undefined extends T ? Name : never) : never;
}[keyof Readers];

type ObjectOf<Readers> = {
  readonly [Name in Exclude<keyof Readers, Optional<Readers>>]: Readers[Name] extends Reader<infer T> ? T : never;
} & {
  readonly [Name in Optional<Readers>]?: Readers[Name] extends Reader<infer T> ? Exclude<T, undefined> : never;
};

const MALFORMED = new Error('malformed');

function such<T>(isSuch: (value: unknown) => boolean): Reader<T> {
  return (value) => {
    if (!isSuch(value)) throw MALFORMED;
    return value as T;
  };
}

function may<T>(reader: Reader<T>): Reader<T | undefined> {
  return (value) => (value === undefined ? undefined : reader(value));
}

function list<T>(most: number, reader: Reader<T>): Reader<readonly T[]> {
  const items = such<unknown[]>((value) => Array.isArray(value) && value.length <= most);
  return (value) => items(value).map(reader);
}

/** An object with these fields. Others are left out. */
function object<Readers extends Readonly<Record<string, Reader<unknown>>>>(
  readers: Readers,
): Reader<ObjectOf<Readers>> {
  return (value) => {
    if (!isRecord(value)) throw MALFORMED;
    const known: Record<string, unknown> = {};
    for (const name in readers) {
      const field = (readers[name] as Reader<unknown>)(value[name]);
      if (field !== undefined) known[name] = field;
    }
    return known as ObjectOf<Readers>;
  };
}

const isNameOf = (value: unknown) => typeof value === 'string' && isName(value);

function isPlace(value: unknown): boolean {
  try {
    return isNameOf(value) && parseDestination(value as string).port > 0;
  } catch {
    return false;
  }
}

const name = such<string>(isNameOf);
const filled = such<string>((value) => isNameOf(value) && value !== '');
/** `host:port` */
const place = such<string>(isPlace);
const flag = such<boolean>((value) => typeof value === 'boolean');
const count = such<number>((value) => Number.isSafeInteger(value) && Number(value) >= 0);
const port = such<number>((value) => Number.isInteger(value) && Number(value) >= 1 && Number(value) <= 65_535);
const hexId = such<string>((value) => typeof value === 'string' && isHexId(value));
const shortText = (most: number, isFit: (text: string) => boolean) =>
  such<string>((value) => typeof value === 'string' && value.length <= most && isFit(value));

/** A hub as agents see it. */
const member = object({
  hubId: filled,
  /** For agents. Empty if agents reach it only through a load balancer. */
  address: (value) => (value === '' ? '' : place(value)),
  zone: name,
  draining: flag,
  /** The incarnation of the hub's record. A later process has a greater number. */
  generation: such<number>(Number.isSafeInteger),
});

export type HubMember = ReturnType<typeof member>;

const members = list(TRANSPORT.hubsInMessage, member);

/** One rule about what callers may dial: a prefix, or a host pattern, or neither, which means every destination. */
const knownRule = object({
  /** Named in refusals. */
  name: may(filled),
  cidr: may(filled),
  host: may(filled),
  /** Default: all. */
  ports: may(list(TRANSPORT.ruleEntries, port)),
  /** The callers it applies to, by name. Default: all. */
  callers: may(list(TRANSPORT.ruleEntries, filled)),
});

/** The agent checks prefixes and patterns when it uses them. */
const rule: typeof knownRule = (value) => {
  const known = knownRule(value);
  const { cidr, host, ports } = known;
  // A rule without any of them would match every destination. Only a later version could mean something else by it.
  if ((cidr ?? host ?? ports) === undefined || (cidr !== undefined && host !== undefined)) throw MALFORMED;
  return known;
};

const rules = may(list(TRANSPORT.ruleEntries, rule));

/** What the callers of a tenant may dial, as its file says. `deny` wins. With `allow`, only what it lists. */
const policy = object({ deny: rules, allow: rules });

export type PolicyRules = ReturnType<typeof policy>;

/** What the two ends of a link tell each other besides the tunnels, by type. */
const MESSAGES = {
  /**
   * From the serving side: send new dials elsewhere if there are other sessions. From the dialling side: it is about to close, so open
   * another link first.
   */
  drain: object({}),
  /**
   * What a hub tells its agents about the plane's hubs: all of them at the start of the link, then changes. Each message confirms
   * everything said before, so an empty change says that nothing changed.
   *
   * `current` says that the registry answers the hub. So the list is up to date, and gateways will hear of a new session.
   */
  membership: object({ current: flag, hubs: members }),
  /** @see membership. `gone` has ids of hubs. */
  'membership-change': object({ current: flag, changed: members, gone: list(TRANSPORT.hubsInMessage, filled) }),
  /**
   * From a hub to its agent: the dial rules of the agent's tenant, all of them, at the start of the link and at each change. Dials can overtake it,
   * so a hub announces the first: see `HubHello.policy`.
   */
  policy,
  /** To an agent: the hub has lost its connection to a gateway's process, which did not say goodbye. */
  'hung-up': object({ gateway: hexId, reset: flag }),
  /**
   * From an agent to a hub that has said that it accepts this message: a fresh token, which replaces the session's present one. The hub
   * verifies it as at the start of the link. It must be of the same principal. Without `Bearer`.
   */
  credential: object({ token: shortText(TRANSPORT.tokenCharacters, (text) => text !== '') }),
  /** From a hub to its agent: the credential that the agent sent last is now the session's. */
  renewed: object({}),
  /** From `isthmus hold` to a gateway: a tunnel of its callers was cut. Who its caller and tenant are follows from the link. */
  cut: object({
    dial: hexId,
    by: such<CutBy>((value) => CUT_BY.includes(value as CutBy)),
    reason: shortText(TRANSPORT.reasonCharacters, isPrintable),
    destination: place,
    agent: name,
    /** The gateway that carried it last, as hold names it. */
    gateway: name,
    /** The name of this hold. */
    hold: filled,
    /** W3C trace context; empty without a trace. */
    trace: name,
    /** How long it had been open, and how long ago it ended, in milliseconds. */
    ms: count,
    agoMs: count,
    up: count,
    down: count,
  }),
};

type Messages = typeof MESSAGES;

export type ControlMessage = {
  [Type in keyof Messages]: { readonly type: Type } & ReturnType<Messages[Type]>;
}[keyof Messages];

export type MembershipMessage = Extract<ControlMessage, { readonly type: 'membership' | 'membership-change' }>;

export type CutMessage = Extract<ControlMessage, { readonly type: 'cut' }>;

/**
 * Returns a message of a known type with nothing but its own fields, or undefined if it is malformed, because the peer may run any software.
 * Unknown types come from later versions, and the receiver skips them.
 */
export function readMessage(value: MessageHead): ControlMessage | undefined {
  const { type } = value;
  if (!Object.hasOwn(MESSAGES, type)) return value as unknown as ControlMessage;
  try {
    return { type, ...MESSAGES[type as keyof Messages](value) } as ControlMessage;
  } catch {
    return undefined;
  }
}

/** What a message costs of what a link takes. */
export function controlCost(bytes: number): number {
  return 1 + bytes / TRANSPORT.controlBytesAMessage;
}

/** Encodes a message once for many links. */
export function encodeControl(message: ControlMessage): string {
  return `${JSON.stringify(message)}\n`;
}

/** What the links of each tenant, or of each gateway's certificate, may say together. */
export class Allowances {
  readonly #senders = new LruMap<string, Allowance>(TRANSPORT.controlSenders);

  of(sender: string): Allowance {
    const { senderMessagesAtOnce: atOnce, senderMessagesPerSecond: perSecond } = TRANSPORT;
    return getOrPut(this.#senders, sender, () => new Allowance({ atOnce, perSecond }));
  }
}

interface ControlOptions {
  /** The longest message from the other side. */
  readonly lineBytes: number;
  /** Of the peer's tenant or certificate, for all its links. Once it is spent, the link rests after each message. Unset: the peer is trusted. */
  readonly allowance?: Allowance | undefined;
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
  readonly #lines: Lines;
  readonly #allowance = new Allowance({
    atOnce: TRANSPORT.controlMessagesAtOnce,
    perSecond: TRANSPORT.controlMessagesPerSecond,
  });

  #rest: NodeJS.Timeout | undefined;

  constructor(stream: Duplex, options: ControlOptions) {
    this.#stream = stream;
    this.#options = options;
    this.#lines = new Lines(options.lineBytes);
    stream.on('error', () => {});
    stream.on('data', (chunk: Buffer) => this.#hear(chunk));
    stream.once('close', () => clearTimeout(this.#rest));
  }

  send(message: ControlMessage): void {
    this.sendLine(encodeControl(message));
  }

  /** Resolves when all that was sent is on its way, or never will be. */
  flushed(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#stream.destroyed || this.#stream.writableLength === 0) resolve();
      else this.#stream.write('', () => resolve());
    });
  }

  /** @param line from `encodeControl` */
  sendLine(line: string): void {
    if (this.#stream.destroyed || this.#stream.writableEnded) return;
    this.#stream.write(line);
    if (this.#stream.writableLength > TRANSPORT.controlBacklogBytes)
      this.#options.fail(new Error('peer does not read control messages'));
  }

  #hear(chunk: Buffer): void {
    const { fail, fault } = this.#options;
    try {
      this.#read(chunk);
    } catch (error) {
      if (error instanceof ConnectionError) fail(error);
      else fault(error as Error);
    }
  }

  #read(chunk: Buffer): void {
    const short = this.#lines.read(chunk, (bytes, next) => {
      if (!this.#take(bytes)) return false;
      if (this.#options.allowance?.spend(controlCost(bytes.length)) !== false) return true;
      this.#restBefore(chunk.subarray(next));
      return false;
    });
    if (!short) this.#options.fail(new Error('control message too long'));
  }

  /** Its sender has said too much. What is not read waits at the peer. */
  #restBefore(unread: Buffer): void {
    this.#stream.pause();
    this.#rest = setTimeout(() => {
      this.#rest = undefined;
      this.#hear(unread);
      if (!this.#rest) this.#stream.resume();
    }, TRANSPORT.controlRestMs).unref();
  }

  /** Returns whether to read on. Throws ConnectionError if there were too many messages. */
  #take(bytes: Buffer): boolean {
    if (!this.#allowance.spend(controlCost(bytes.length)))
      throw new ConnectionError(
        ErrorCode.ENHANCE_YOUR_CALM,
        `more control messages than ${TRANSPORT.controlMessagesAtOnce} at once and ${TRANSPORT.controlMessagesPerSecond} a second`,
      );
    const { receive, refused, fail } = this.#options;
    const line = bytes.toString();
    const head = parse(line);
    const message = head && readMessage(head);
    // A token that could not be read is a secret all the same.
    const shown = head?.type === 'credential' ? 'credential' : line.slice(0, 100);
    const bad = () => new Error(`bad control message ${JSON.stringify(shown)}`);
    if (message) receive(message);
    else if (head) refused(bad());
    else fail(bad());
    return head !== undefined;
  }
}

type MessageHead = Readonly<Record<string, unknown>> & { readonly type: string };

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}

/** Returns one line as an object with a type, or undefined if it is none. */
function parse(line: string): MessageHead | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return isRecord(value) && typeof value.type === 'string' ? (value as MessageHead) : undefined;
  } catch {
    return undefined;
  }
}
