import type { Duplex } from 'node:stream';
import { getOrPut, isPrintable, LruMap } from '@isthmus/runtime';
import { CUT_BY, type CutBy, type GatewayLoss, isName, parseDestination } from '@isthmus/tunnel';
import { Allowance, ConnectionError, ErrorCode } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import { Lines } from '../http1.ts';

/**
 * From an agent to a hub that has said that it accepts this message: a fresh token, which replaces the session's present one. The hub
 * verifies it as at the start of the link. It must be of the same principal.
 */
interface CredentialMessage {
  readonly type: 'credential';
  /** Without `Bearer`. */
  readonly token: string;
}

/** From a hub to its agent: the credential that the agent sent last is now the session's. */
interface RenewedMessage {
  readonly type: 'renewed';
}

/** Returns a credential message with nothing but its own fields, or undefined if it is malformed. */
function readCredential({ token }: Readonly<Record<string, unknown>>): CredentialMessage | undefined {
  if (typeof token !== 'string' || token === '' || token.length > TRANSPORT.tokenCharacters) return undefined;
  return { type: 'credential', token };
}

/** Names a gateway's process in the head of its control stream. */
export const GATEWAY_FIELD = 'isthmus-gateway';

/** Whether a text can name a process or a dial: 16 hexadecimal digits. */
export function isHexId(text: string): boolean {
  return /^[0-9a-f]{16}$/.test(text);
}

/** A hub as agents see it. */
export interface HubMember {
  readonly hubId: string;
  /** `host:port` for agents. Empty if agents reach it only through a load balancer. */
  readonly address: string;
  readonly zone: string;
  readonly draining: boolean;
  /** The incarnation of the hub's record. A later process has a greater number. */
  readonly generation: number;
}

/**
 * What a hub tells its agents about the plane's hubs: all of them at the start of the link, then changes. Each message confirms
 * everything said before, so an empty change says that nothing changed.
 *
 * `current` says that the registry answers the hub. So the list is up to date, and gateways will hear of a new session.
 */
export type MembershipMessage =
  | { readonly type: 'membership'; readonly current: boolean; readonly hubs: readonly HubMember[] }
  | {
      readonly type: 'membership-change';
      readonly current: boolean;
      readonly changed: readonly HubMember[];
      /** Ids of hubs. */
      readonly gone: readonly string[];
    };

/**
 * Returns a membership message with nothing but its own fields, or undefined if it is malformed. `current` and `generation` are
 * optional, because older hubs do not send them.
 */
export function readMembership(value: Readonly<Record<string, unknown>>): MembershipMessage | undefined {
  const { type, current = true, hubs, changed, gone } = value;
  if (typeof current !== 'boolean') return undefined;
  if (type === 'membership') {
    const all = hubList(hubs, readMember);
    return all && { type, current, hubs: all };
  }
  if (type !== 'membership-change') return undefined;
  const members = hubList(changed, readMember);
  const ids = hubList(gone, readId);
  return members && ids && { type, current, changed: members, gone: ids };
}

function hubList<T>(value: unknown, read: (item: unknown) => T | undefined): T[] | undefined {
  return listOf(value, TRANSPORT.hubsInMessage, read);
}

function listOf<T>(value: unknown, most: number, read: (item: unknown) => T | undefined): T[] | undefined {
  if (!Array.isArray(value) || value.length > most) return undefined;
  const items: T[] = [];
  for (const item of value) {
    const known = read(item);
    if (known === undefined) return undefined;
    items.push(known);
  }
  return items;
}

function readMember(value: unknown): HubMember | undefined {
  if (!isRecord(value)) return undefined;
  const { hubId, address, zone, draining, generation = 0 } = value;
  if (readId(hubId) === undefined || !isNameOf(address) || !isNameOf(zone)) return undefined;
  if (typeof draining !== 'boolean' || !Number.isSafeInteger(generation)) return undefined;
  if (address !== '' && !isPlace(address)) return undefined;
  return { hubId: hubId as string, address, zone, draining, generation: generation as number };
}

function readId(value: unknown): string | undefined {
  return isNameOf(value) && value !== '' ? value : undefined;
}

function isNameOf(value: unknown): value is string {
  return typeof value === 'string' && isName(value);
}

function isReason(value: unknown): value is string {
  return typeof value === 'string' && value.length <= TRANSPORT.reasonCharacters && isPrintable(value);
}

function isPlace(text: string): boolean {
  try {
    parseDestination(text);
    return true;
  } catch {
    return false;
  }
}

/** One rule about what callers may dial: a prefix, or a host pattern, or neither, which means every destination. */
interface PolicyRule {
  /** Named in refusals. */
  readonly name?: string;
  readonly cidr?: string;
  readonly host?: string;
  /** Default: all. */
  readonly ports?: readonly number[];
  /** The callers it applies to, by name. Default: all. */
  readonly callers?: readonly string[];
}

/** What the callers of a tenant may dial, as its file says. `deny` wins. With `allow`, only what it lists. */
export interface PolicyRules {
  readonly deny?: readonly PolicyRule[];
  readonly allow?: readonly PolicyRule[];
}

/**
 * From a hub to its agent: the dial rules of the agent's tenant, all of them, at the start of the link and at each change. Dials can overtake it,
 * so a hub announces the first: see `HubHello.policy`.
 */
type PolicyMessage = { readonly type: 'policy' } & PolicyRules;

/**
 * Returns a policy message with nothing but its own fields, or undefined if it is malformed. The agent checks prefixes and patterns when it
 * uses them.
 */
export function readPolicy(value: Readonly<Record<string, unknown>>): PolicyMessage | undefined {
  const message: { -readonly [Key in keyof PolicyMessage]: PolicyMessage[Key] } = { type: 'policy' };
  for (const name of ['deny', 'allow'] as const) {
    if (value[name] === undefined) continue;
    const rules = listOf(value[name], TRANSPORT.ruleEntries, readRule);
    if (!rules) return undefined;
    message[name] = rules;
  }
  return message;
}

function readRule(value: unknown): PolicyRule | undefined {
  if (!isRecord(value)) return undefined;
  const { name, cidr, host, ports, callers } = value;
  // A rule without any of them would match every destination. Only a later version could mean something else by it.
  if (cidr === undefined && host === undefined && ports === undefined) return undefined;
  if (cidr !== undefined && host !== undefined) return undefined;
  if (![name, cidr, host].every((text) => text === undefined || isText(text))) return undefined;
  if (!isListOf(ports, isPort) || !isListOf(callers, isText)) return undefined;
  return {
    ...(name !== undefined && { name: name as string }),
    ...(cidr !== undefined && { cidr: cidr as string }),
    ...(host !== undefined && { host: host as string }),
    ...(ports !== undefined && { ports: ports as number[] }),
    ...(callers !== undefined && { callers: callers as string[] }),
  };
}

function isListOf(value: unknown, isItem: (item: unknown) => boolean): boolean {
  return value === undefined || (Array.isArray(value) && value.length <= TRANSPORT.ruleEntries && value.every(isItem));
}

function isText(value: unknown): boolean {
  return typeof value === 'string' && value !== '' && isName(value);
}

function isPort(value: unknown): boolean {
  return Number.isInteger(value) && (value as number) >= 1 && (value as number) <= 65_535;
}

/** From `isthmus hold` to a gateway: a tunnel of its callers was cut. Who its caller and tenant are follows from the link. */
export interface CutMessage {
  readonly type: 'cut';
  readonly dial: string;
  readonly by: CutBy;
  readonly reason: string;
  /** `host:port` */
  readonly destination: string;
  readonly agent: string;
  /** The gateway that carried it last, as hold names it. */
  readonly gateway: string;
  /** The name of this hold. */
  readonly hold: string;
  /** W3C trace context; empty without a trace. */
  readonly trace: string;
  /** How long it had been open, and how long ago it ended, in milliseconds. */
  readonly ms: number;
  readonly agoMs: number;
  readonly up: number;
  readonly down: number;
}

/** Returns a cut with nothing but its own fields, or undefined if it is malformed. */
export function readCut(value: Readonly<Record<string, unknown>>): CutMessage | undefined {
  const { dial, by, reason, destination, agent, gateway, hold, trace, ms, agoMs, up, down } = value;
  const counts = [ms, agoMs, up, down];
  if (!counts.every((count) => Number.isSafeInteger(count) && (count as number) >= 0)) return undefined;
  if (typeof dial !== 'string' || !isHexId(dial) || !CUT_BY.includes(by as CutBy)) return undefined;
  if (!isReason(reason)) return undefined;
  if (!isNameOf(destination) || !isPlace(destination) || !isNameOf(agent) || !isNameOf(trace)) return undefined;
  if (!isNameOf(gateway) || readId(hold) === undefined) return undefined;
  const [age, ago, sent, got] = counts as [number, number, number, number];
  return {
    type: 'cut',
    dial,
    by: by as CutBy,
    reason,
    destination,
    agent,
    gateway,
    hold: hold as string,
    trace,
    ms: age,
    agoMs: ago,
    up: sent,
    down: got,
  };
}

/** What the two ends of a link tell each other besides the tunnels. */
export type ControlMessage =
  /**
   * From the serving side: send new dials elsewhere if there are other sessions. From the dialling side: it is about to close, so open
   * another link first.
   */
  | { readonly type: 'drain' }
  /** To an agent: the plane's hubs, at the start of the link and whenever they change. */
  | MembershipMessage
  | PolicyMessage
  /** To an agent: the hub has lost its connection to a gateway's process, which did not say goodbye. */
  | ({ readonly type: 'hung-up' } & GatewayLoss)
  | CredentialMessage
  | RenewedMessage
  | CutMessage;

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

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}

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
  if (type === 'hung-up') return readHungUp(value);
  if (type === 'cut') return readCut(value);
  return value as ControlMessage;
}

/** A hub of an earlier version does not say whether the connection was reset. */
function readHungUp({ gateway, reset = false, unread = false }: Head): ControlMessage | undefined {
  const flags = typeof reset === 'boolean' && typeof unread === 'boolean';
  const readable = typeof gateway === 'string' && isHexId(gateway) && flags;
  return readable ? { type: 'hung-up', gateway, reset, unread } : undefined;
}
