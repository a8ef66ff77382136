import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { printable } from '@isthmus/runtime';
import { DialError, type DialErrorCode } from '@isthmus/tunnel';
import type { Field } from '@isthmus/wire';
import { TRANSPORT } from './defaults.ts';

const NOTHING = Buffer.alloc(0);

/**
 * Bytes that arrive in pieces and are needed as a whole. The room doubles as they grow, so each byte is copied at most twice on
 * average, however small the pieces are: joining everything again for each piece would cost the square. The caller checks the length.
 */
export class Pieces {
  #room: Buffer = NOTHING;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** Returns all bytes so far. The result is valid until more is added. A first piece is not copied. */
  add(piece: Buffer): Buffer {
    const length = this.#length + piece.length;
    if (this.#length === 0) this.#room = piece;
    else {
      // Also if the room is the first piece, which belongs to the socket.
      if (length > this.#room.length) this.#grow(length);
      this.#room.set(piece, this.#length);
    }
    this.#length = length;
    return this.#room.subarray(0, length);
  }

  /** Returns all bytes and keeps none of them. */
  take(): Buffer {
    const all = this.#room.subarray(0, this.#length);
    this.#room = NOTHING;
    this.#length = 0;
    return all;
  }

  #grow(length: number): void {
    const room = Buffer.allocUnsafeSlow(2 * length);
    room.set(this.#room.subarray(0, this.#length));
    this.#room = room;
  }
}

const LINE_END = 0x0a;

/** Splits bytes that come in pieces into lines. Searches only new data for their ends. */
export class Lines {
  /** The start of a line whose end has not arrived. */
  readonly #begun = new Pieces();
  readonly #most: number;

  /** @param most the longest line, in bytes */
  constructor(most: number) {
    this.#most = most;
  }

  /**
   * @param take gets each line, and where in the chunk the next one begins; returns whether to read on
   * @returns false if a line is too long
   */
  read(chunk: Buffer, take: (line: Buffer, next: number) => boolean): boolean {
    let start = 0;
    for (let end = chunk.indexOf(LINE_END); end >= 0; end = chunk.indexOf(LINE_END, start)) {
      this.#begun.add(chunk.subarray(start, end));
      start = end + 1;
      if (this.#begun.length > this.#most) return false;
      if (!take(this.#begun.take(), start)) return true;
    }
    if (start < chunk.length) this.#begun.add(chunk.subarray(start));
    return this.#begun.length <= this.#most;
  }
}

/** The end of a head's last line, and the empty line behind it. */
const HEAD_END = /\r?\n\r?\n/;

/**
 * Splits a head into its lines as Go's net/textproto does, since people's printf sends line feeds alone: a line ends at a line feed, without
 * one carriage return before it, and the head ends with its first empty line. How it came in pieces changes nothing.
 * @param bytes all that have come so far
 * @param searched how many of them came before
 * @param most how many it may have before its end
 * @returns its lines without their ends, and the bytes that came behind it. Undefined while it is not complete, 'too long' if it never is
 */
function wholeHead(bytes: Buffer, searched: number, most: number): [string[], Buffer] | 'too long' | undefined {
  const from = Math.max(0, searched - 3);
  const end = HEAD_END.exec(bytes.toString('latin1', from));
  // More bytes may show that the last three belong to its end.
  const length = end ? from + end.index : bytes.length - 3;
  if (length > most) return 'too long';
  if (!end) return undefined;
  return [bytes.toString('latin1', 0, length).split(/\r?\n/), bytes.subarray(length + end[0].length)];
}

/** A name without a space before the colon, a value without control characters, and no folding (RFC 9112 section 5). */
const FIELD = /^([!#$%&'*+.^`|~\w-]+):([\t\x20-\x7e\x80-\xff]*)$/;

/** Returns the field of a head's line, with its name in lower case. Undefined if the line is none. */
export function fieldOf(line: string): Field | undefined {
  const [, name, value = ''] = FIELD.exec(line) ?? [];
  return name === undefined ? undefined : [name.toLowerCase(), value.trim()];
}

/** A substring keeps the whole string in memory: copy what stays longer than its head. */
export function copied(part: string): string {
  return Buffer.from(part, 'latin1').toString('latin1');
}

/** The beginning of a peer's text, for an error. */
export function quoted(text: string): string {
  return printable(JSON.stringify(text.slice(0, 60)));
}

interface RefusedAs {
  readonly code?: DialErrorCode;
  readonly cause?: unknown;
}

/** A request that is not served, and the status to answer. */
export class RequestRefused extends DialError {
  readonly #status: number;

  constructor(status: number, message: string, { code = 'http_request_error', cause }: RefusedAs = {}) {
    super(code, message, { cause });
    this.#status = status;
  }

  override get status(): number {
    return this.#status;
  }
}

/** The head of a request of any HTTP/1 (RFC 9110 section 2.5). A text of it that stays longer than the head is to be copied. */
export interface RequestHead {
  readonly method: string;
  readonly target: string;
  /** With names in lower case. */
  readonly fields: readonly Field[];
  /** The bytes that came behind it. */
  readonly rest: Buffer;
}

const LETTER_A = 0x61;
const LETTER_Z = 0x7a;

const REQUEST_LINE = /^([!#$%&'*+.^`|~\w-]+) ([\x21-\x7e\x80-\xff]+) HTTP\/(\d\.\d)$/;

/**
 * Reads the head of a request, whose pieces may come one by one.
 * @param bytes all that have come so far
 * @param searched how many of them came before
 * @returns undefined while it is not complete
 * @throws RequestRefused
 */
export function requestIn(bytes: Buffer, searched = 0): RequestHead | undefined {
  if (bytes.length === 0) return undefined;
  // TLS and noise never contain the end of a head. The bit makes a letter a small one.
  const first = (bytes[0] as number) | 0x20;
  if (first < LETTER_A || first > LETTER_Z) throw new RequestRefused(400, 'not an HTTP request');
  const most = TRANSPORT.requestHeadBytes;
  const head = wholeHead(bytes, searched, most);
  if (head === 'too long') throw new RequestRefused(431, `the request's head is longer than ${most} bytes`);
  if (!head) return undefined;
  const [[requestLine = '', ...lines], rest] = head;
  const [, method = '', target, version] = REQUEST_LINE.exec(requestLine) ?? [];
  if (target === undefined) throw new RequestRefused(400, `not an HTTP request: ${shown(requestLine)}`);
  if (!version?.startsWith('1.')) throw new RequestRefused(505, `HTTP/${version} is not served: use HTTP/1.1`);
  const fields: Field[] = [];
  let hosts = 0;
  for (const line of lines) {
    const field = fieldOf(line);
    // A folded line, or one with a space before its colon, may hold a token.
    if (!field) throw new RequestRefused(400, `line ${fields.length + 2} of the head is not a header field`);
    if (field[0] === 'host' && ++hosts > 1) throw new RequestRefused(400, 'there are several Host: send one');
    fields.push(field);
  }
  return { method, target, fields, rest };
}

/** Without what may be a password: what stands before an @, or behind a carriage return. Word by word: a search for each @ costs the square of a line. */
function shown(line: string): string {
  const [first = ''] = line.split('\r');
  const bare = (word: string) => (word.includes('@') ? `...${word.slice(word.lastIndexOf('@'))}` : word);
  return quoted(first.replace(/\S+/g, bare));
}

/**
 * Reads the head of an answer of HTTP/1.1 and leaves every byte behind it on the socket. What follows an upgrade is not HTTP/1.1, and
 * node:http cannot hand a socket over on every runtime.
 * @param timeout milliseconds
 * @returns its first line and its fields', see `fieldOf`
 */
function readHead(socket: Socket, timeout: number): Promise<string[]> {
  return new Promise((resolve, reject) => {
    const pieces = new Pieces();
    const settle = (done: () => void) => {
      clearTimeout(timer);
      socket.off('readable', read).off('error', fail).off('end', close).off('close', close);
      done();
    };
    const fail = (error: Error) => settle(() => reject(error));
    const close = () => fail(new Error('connection closed before an answer'));
    const read = () => {
      for (let chunk = socket.read() as Buffer | null; chunk !== null; chunk = socket.read() as Buffer | null) {
        const { length } = pieces;
        const head = wholeHead(pieces.add(chunk), length, TRANSPORT.headBytes);
        if (head === undefined) continue;
        if (head === 'too long') fail(new Error(`answer's head is longer than ${TRANSPORT.headBytes} bytes`));
        else {
          const [lines, rest] = head;
          if (rest.length > 0) socket.unshift(rest);
          settle(() => resolve(lines));
        }
        return;
      }
    };
    const timer = setTimeout(() => fail(new Error(`no answer in ${timeout} ms`)), timeout);
    socket.on('readable', read).once('error', fail).once('end', close).once('close', close);
    read();
  });
}

/** The head of an answer. Of a repeated field, the last counts. */
export interface HttpAnswer {
  readonly status: number;
  /** The text after the status: `Not Found`. May be empty. */
  readonly reason: string;
  readonly fields: ReadonlyMap<string, string>;
}

/** Sends a request and reads the head of its answer, see `readHead`. Passes over lines that are no fields. */
export async function ask(socket: Socket, request: string, timeout: number): Promise<HttpAnswer> {
  // A broken connection fails both, and neither failure may go unhandled.
  const [answer] = await Promise.all([readAnswer(socket, timeout), write(socket, request)]);
  return answer;
}

async function readAnswer(socket: Socket, timeout: number): Promise<HttpAnswer> {
  const [line = '', ...lines] = await readHead(socket, timeout);
  const [, status, reason = ''] = /^HTTP\/1\.\d (\d{3})(?: (.*))?$/.exec(line) ?? [];
  if (status === undefined) throw new Error(`not an HTTP/1.1 answer: ${quoted(line)}`);
  const fields = lines.map(fieldOf).filter((field) => field !== undefined);
  return { status: Number(status), reason, fields: new Map(fields) };
}

/** Returns undefined if it is not percent-encoded UTF-8. */
export function percentDecoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** Accepts any text. encodeURIComponent throws for half of a surrogate pair, which JSON from elsewhere may contain. */
export function percentEncoded(text: string): string {
  return encodeURIComponent(Buffer.from(text).toString());
}

/** Returns a peer's reason for people to read. A reason that is not percent-encoded stays as it is. */
export function reasonOf(text: string): string {
  return printable((percentDecoded(text) ?? text).slice(0, TRANSPORT.shownReasonCharacters));
}

/** The text of an answer that ends its connection. */
export function lastAnswer(
  status: number,
  fields: readonly Field[],
  reason = STATUS_CODES[status] ?? 'Error',
  body = '',
): string {
  const lines = [['connection', 'close'], ...fields].map(([name, value]) => `${name}: ${value}`);
  return [`HTTP/1.1 ${status} ${reason}`, ...lines, '', body].join('\r\n');
}

/**
 * Ends a connection with an answer. Its bytes must be read and dropped (`SocketEnd.forget`), for a while: with bytes that nobody has read, the
 * close becomes a reset, which overtakes the answer.
 */
export function answerLast(socket: Socket, ...answer: Parameters<typeof lastAnswer>): void {
  if (socket.destroyed || !socket.writable) return;
  endsSoon(socket);
  socket.end(lastAnswer(...answer));
}

/** Gives a refused peer a while to close. @param late called if it has not */
export function endsSoon(socket: Socket, late?: () => void): void {
  const ended = () => {
    late?.();
    socket.destroy();
  };
  const timer = setTimeout(ended, TRANSPORT.refusedPeerMs).unref();
  socket.on('error', () => {});
  socket.on('close', () => clearTimeout(timer));
}

/** Resolves once the socket has taken the text. */
function write(socket: Socket, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    // What ended the socket says more than that it has ended, which is what Deno says.
    socket.write(text, (error) => (error ? reject(socket.errored ?? error) : resolve()));
  });
}
