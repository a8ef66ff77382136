import { SharedBudget } from '@isthmus/runtime';
import { type Config, WIRE } from '../defaults.ts';
import { ConnectionError, ErrorCode, Flag, FrameType, HeadTooLong, unpadded } from './frames.ts';
import { HpackDecoder, hpackEncode } from './hpack.ts';

/** Size of the priority fields in a HEADERS frame, in bytes. */
const PRIORITY_LENGTH = 5;

/** What each frame costs on top of its bytes, so that empty ones are bounded too: the object that holds them takes as much. */
const FRAME_COST = 300;

/** A field of a header section. */
export type Field = readonly [name: string, value: string];

/** Pseudo-header fields by name. */
type PseudoFields = Readonly<Record<string, string | undefined>>;

/** What a header section belongs to. */
type SectionKind = 'request' | 'response' | 'trailers';

/** A field's name is a token in lower case (RFC 9113 section 8.2.1). */
const NAME = /^[!#$%&'*+\-.^_`|~0-9a-z]+$/;

/** A value may contain neither NUL nor a line break. */
const BAD_VALUE = /[\0\r\n]/;

/** Connection-specific fields of HTTP/1.1; HTTP/2 uses frames instead (section 8.2.2). */
const CONNECTION_FIELDS = new Set(['connection', 'keep-alive', 'proxy-connection', 'transfer-encoding', 'upgrade']);

const ALLOWED: Readonly<Record<SectionKind, ReadonlySet<string>>> = {
  request: new Set([':method', ':scheme', ':path', ':authority']),
  response: new Set([':status']),
  trailers: new Set(),
};

const STATUS = /^[1-5]\d\d$/;

/** An object without a prototype's fields, as by Object.create(null), which V8 would make a hash table. */
const Fields = function Fields() {} as unknown as new () => Record<string, string>;
Fields.prototype = Object.create(null);

/** @returns the pseudo-header fields; undefined if the section is malformed (sections 8.1.1 and 8.3) */
export function readPseudo(section: readonly Field[], kind: SectionKind): PseudoFields | undefined {
  const own = new Fields();
  let regular = false;
  for (const field of section) {
    const name = field[0];
    const value = field[1];
    if (BAD_VALUE.test(value)) return undefined;
    if (!name.startsWith(':')) {
      regular = true;
      if (!NAME.test(name) || CONNECTION_FIELDS.has(name)) return undefined;
      if (name === 'te' && value !== 'trailers') return undefined;
    } else {
      if (regular || !ALLOWED[kind].has(name) || own[name] !== undefined) return undefined;
      own[name] = value;
    }
  }
  if (kind === 'trailers') return own;
  const { ':method': method, ':path': path, ':scheme': scheme, ':authority': authority, ':status': status } = own;
  if (kind === 'response') return STATUS.test(status ?? '') ? own : undefined;
  // Section 8.5: a CONNECT has only a destination.
  const isComplete =
    method === 'CONNECT'
      ? authority && path === undefined && scheme === undefined
      : method && path && scheme !== undefined;
  return isComplete ? own : undefined;
}

/** Whether a section claims to begin a message, well-formed or not: trailers have no pseudo-header fields. */
export function beginsMessage([first]: readonly Field[]): boolean {
  return first?.[0].startsWith(':') ?? false;
}

/** Header fields by name in lower case, with pseudo-header fields. */
export type Head = Readonly<Record<string, string>>;

/** Header fields to send, pseudo-header fields first. */
export type OutgoingHead = Readonly<Record<string, string | number>>;

/** Characters that no field may hold: RFC 9110 section 5.5, and characters above one octet. */
const UNFIT = /[^\t\x20-\x7e\x80-\xff]/;

/** @throws TypeError for a value that no header field may hold */
export function encodeHead(head: OutgoingHead): Buffer {
  const fields: [string, string][] = [];
  for (const name in head) {
    const value = String(head[name]);
    if (UNFIT.test(value)) throw new TypeError(`header field ${name} may not hold ${JSON.stringify(value)}`);
    fields.push([name, value]);
  }
  return hpackEncode(fields);
}

/** A complete head. */
export interface ReceivedHead {
  readonly stream: number;
  /** Unset if it is longer than it may be. */
  readonly fields: readonly Field[] | undefined;
  /** Whether the other side sends nothing more on the stream. */
  readonly ends: boolean;
  /** Of its block. */
  readonly bytes: number;
}

/** A head whose last frame has not come. */
interface UnfinishedHead extends Omit<ReceivedHead, 'fields' | 'bytes'> {
  /** Its frames' bytes, still compressed. */
  readonly parts: Buffer[];
  cost: number;
  /** What its parts beyond the first took of `UNFINISHED`. */
  taken: number;
}

/** What all connections of the process keep of unfinished heads, beyond the first frame of each. */
const UNFINISHED = new SharedBudget(WIRE.unfinishedHeadBytes);

/** Reads the heads of one direction of a connection: HEADERS, and CONTINUATION until END_HEADERS (RFC 9113 sections 6.2 and 6.10). */
export class HeadReader {
  readonly #decoder: HpackDecoder;
  readonly #maxRead: number;
  readonly #headMs: number;
  readonly #late: () => void;
  /** A head of several frames. No other frame may come before its end. */
  begun: UnfinishedHead | undefined;
  #timer: NodeJS.Timeout | undefined;

  /**
   * @param headBytes the longest head. One up to twice as long is read, so that what follows can be, and its fields are left out
   * @param late called when a head of several frames was not complete in time
   */
  constructor({ headBytes, headFields, headMs }: Config, late: () => void) {
    this.#maxRead = 2 * headBytes;
    this.#decoder = new HpackDecoder(headBytes, headFields);
    this.#headMs = headMs;
    this.#late = late;
  }

  /** @throws ConnectionError if a head is incomplete and this frame does not continue it, or if there is none to continue */
  expect(type: number, stream: number): void {
    const begun = this.begun;
    if (type === FrameType.CONTINUATION ? begun?.stream === stream : !begun) return;
    const what = begun
      ? `a header section on stream ${begun.stream} was not continued`
      : 'CONTINUATION without HEADERS';
    throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, what);
  }

  headers(stream: number, flags: number, payload: Buffer): ReceivedHead | undefined {
    const ends = (flags & Flag.END_STREAM) !== 0;
    // Nearly every head is one frame without padding.
    if ((flags & ~Flag.END_STREAM) === Flag.END_HEADERS && payload.length + FRAME_COST <= this.#maxRead)
      return { stream, fields: this.#decoder.decode(payload), ends, bytes: payload.length };
    const part = flags & Flag.PADDED ? unpadded(payload) : payload;
    this.begun = { stream, ends, parts: [], cost: 0, taken: 0 };
    return this.continuation(flags, flags & Flag.PRIORITY ? part.subarray(PRIORITY_LENGTH) : part);
  }

  /** Call only after `expect`. */
  continuation(flags: number, part: Buffer): ReceivedHead | undefined {
    const begun = this.begun as UnfinishedHead;
    begun.cost += part.length + FRAME_COST;
    if (begun.cost > this.#maxRead) {
      throw new HeadTooLong(`a header section of more than ${this.#maxRead} bytes`);
    }
    if (!(flags & Flag.END_HEADERS)) {
      this.#keep(begun, part);
      return undefined;
    }
    const { stream, ends, parts } = begun;
    this.drop();
    const block = parts.length === 0 ? part : Buffer.concat([...parts, part]);
    return { stream, fields: this.#decoder.decode(block), ends, bytes: block.length };
  }

  #keep(begun: UnfinishedHead, part: Buffer): void {
    this.#timer ??= setTimeout(this.#late, this.#headMs).unref();
    // As much is kept of any frame until it has come whole.
    if (begun.parts.length > 0) {
      const cost = part.length + FRAME_COST;
      // Others keep what may be kept: this one may come again, so it is not too long.
      if (!UNFINISHED.take(cost))
        throw new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, 'too many long heads are on their way: try again');
      begun.taken += cost;
    }
    // A copy, and not in Node's pool: a view would keep the whole chunk that it was read with, or the whole pool.
    const own = Buffer.alloc(part.length);
    part.copy(own);
    begun.parts.push(own);
  }

  /** Forgets an unfinished head. */
  drop(): void {
    if (this.begun) UNFINISHED.give(this.begun.taken);
    this.begun = undefined;
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}

/** Joins fields of the same name with `, ` (RFC 9110 section 5.3). */
export function headOf(fields: readonly Field[]): Head {
  const head = new Fields();
  for (const field of fields) {
    const name = field[0];
    const before = head[name];
    head[name] = before === undefined ? field[1] : `${before}, ${field[1]}`;
  }
  return head;
}

const CONTENT_LENGTH = /^\d{1,15}$/;

/**
 * How many bytes of data a request announces.
 * @returns undefined for any number; NaN if the section is no request, or malformed
 */
export function contentOf(request: readonly Field[]): number | undefined {
  const own = readPseudo(request, 'request');
  if (!own) return Number.NaN;
  // RFC 9110 section 9.3.6: a CONNECT has no content; the bytes after it belong to the tunnel.
  if (own[':method'] === 'CONNECT') return undefined;
  let length: number | undefined;
  for (const [name, value] of request) {
    if (name !== 'content-length') continue;
    const next = CONTENT_LENGTH.test(value) ? Number(value) : Number.NaN;
    length = length === undefined || length === next ? next : Number.NaN;
  }
  return length;
}
