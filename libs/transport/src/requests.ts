import type { Socket } from 'node:net';
import { putBack } from '@isthmus/runtime';
import { type Due, deadlines } from '@isthmus/tunnel';
import type { Field } from '@isthmus/wire';
import { TRANSPORT } from './defaults.ts';
import { fieldOf, HEAD_END, Pieces, quoted } from './http1.ts';
import type { Accept } from './listen.ts';
import { RequestRefused } from './proxy-authorization.ts';
import type { SocketEnd, SocketUser } from './socket-end.ts';

/** The head of a request of HTTP/1.1 or 1.0 (RFC 9112). A text of it that stays longer than the head is to be copied. */
export interface RequestHead {
  readonly method: string;
  readonly target: string;
  /** With names in lower case. */
  readonly fields: readonly Field[];
  /** The bytes that came behind it. */
  readonly rest: Buffer;
}

/** Serves the requests of a port. Each connection has one. */
export interface RequestEdge {
  /** What it throws refuses the request. */
  readonly serve: (end: SocketEnd, head: RequestHead) => void;
  /** Answers a request with what is wrong with it, and ends its connection. A RequestRefused has the status. */
  readonly refuse: (end: SocketEnd, error: Error) => void;
  /** Ends a connection for a defect of ours. */
  readonly fault: (end: SocketEnd, error: Error) => void;
}

/** Reads the request of each connection for an edge. ([Why not node:http](docs/adr/0002-one-http2-stream-per-tunnel.md)) */
export function requests(edge: RequestEdge): Accept {
  return (end, first) => new IncomingRequest(end, edge).onData(first);
}

/** Takes the connection of a request that changes its protocol. The bytes behind the head are still to be read. */
export function upgraded(end: SocketEnd, { rest }: RequestHead): Socket {
  const socket = end.release();
  putBack(socket, rest);
  return socket;
}

const REQUEST_LINE = /^([!#$%&'*+.^`|~\w-]+) ([\x21-\x7e\x80-\xff]+) HTTP\/(\d\.\d)$/;

/** Reads the head of one request, however it is cut. */
export class RequestReader {
  readonly #seen = new Pieces();

  /** Whether it holds more of a head than what anyone may have on the way. */
  get isLong(): boolean {
    return this.#seen.length > TRANSPORT.headBytes;
  }

  /** Returns the head once it is complete. Throws RequestRefused. */
  push(chunk: Buffer): RequestHead | undefined {
    const searched = Math.max(0, this.#seen.length - HEAD_END.length + 1);
    const bytes = this.#seen.add(chunk);
    if (bytes.length === 0) return undefined;
    // TLS and noise never contain the end of a head.
    if (!isLetter(bytes[0])) throw new RequestRefused(400, 'not an HTTP request');
    let lineEnd = '\r\n';
    let end = bytes.indexOf(HEAD_END, searched);
    // People's printf sends line feeds alone, and Go's servers read them.
    if (end < 0) {
      lineEnd = '\n';
      end = bytes.indexOf('\n\n', searched);
    }
    const most = TRANSPORT.requestHeadBytes;
    if ((end < 0 ? bytes.length - HEAD_END.length + 1 : end) > most)
      throw new RequestRefused(431, `the request's head is longer than ${most} bytes`);
    if (end < 0) return undefined;
    return headIn(bytes.toString('latin1', 0, end).split(lineEnd), bytes.subarray(end + 2 * lineEnd.length));
  }
}

function headIn([requestLine = '', ...lines]: readonly string[], rest: Buffer): RequestHead {
  const [, method = '', target, version] = REQUEST_LINE.exec(requestLine) ?? [];
  if (target === undefined) throw new RequestRefused(400, `not an HTTP request: ${shown(requestLine)}`);
  if (version !== '1.1' && version !== '1.0')
    throw new RequestRefused(400, `HTTP/${version} is not served: use HTTP/1.1`);
  return { method, target, fields: lines.map(readField), rest };
}

function readField(line: string, index: number): Field {
  const field = fieldOf(line);
  // A folded line, or one with a space before its colon, may hold a token.
  if (!field) throw new RequestRefused(400, `line ${index + 2} of the head is not a header field`);
  return field;
}

function isLetter(byte = 0): boolean {
  return (byte >= 0x41 && byte <= 0x5a) || (byte >= 0x61 && byte <= 0x7a);
}

/** Without what may be a password: what stands before an @, or behind a line's end. Word by word: a search for each @ costs the square of a line. */
function shown(line: string): string {
  const [first = ''] = line.split(/[\r\n]/);
  const bare = (word: string) => (word.includes('@') ? `...${word.slice(word.lastIndexOf('@'))}` : word);
  return quoted(first.replace(/\S+/g, bare));
}

/** Heads longer than `headBytes` that are on their way. */
let longHeads = 0;

/** A request whose head has not come whole. Nearly every one comes in one piece: only others wait, with a deadline. */
class IncomingRequest implements SocketUser, Due {
  before: Due | undefined;
  behind: Due | undefined;
  due = 0;
  readonly #end: SocketEnd;
  readonly #edge: RequestEdge;
  readonly #reader = new RequestReader();
  #isLong = false;

  constructor(end: SocketEnd, edge: RequestEdge) {
    this.#end = end;
    this.#edge = edge;
  }

  onData(chunk: Buffer): void {
    try {
      const head = this.#reader.push(chunk);
      if (head) {
        this.#settle();
        this.#edge.serve(this.#end, head);
      } else this.#wait();
    } catch (error) {
      this.#refuse(error as Error);
    }
  }

  onEnd(): void {
    this.#refuse(new RequestRefused(400, 'the connection ended in the middle of its request'));
  }

  onClose(): void {
    this.#settle();
  }

  remind(): void {
    this.#refuse(new RequestRefused(408, 'no request in time'));
  }

  #wait(): void {
    if (this.#reader.isLong && !this.#isLong) {
      if (longHeads >= TRANSPORT.longHeads) {
        const why = `the request's head is longer than ${TRANSPORT.headBytes} bytes, and too many such heads are on their way: try again`;
        throw new RequestRefused(503, why);
      }
      this.#isLong = true;
      longHeads++;
    }
    if (this.due > 0) return;
    this.due = performance.now() + TRANSPORT.requestHeadMs;
    deadlines.enter(this);
    this.#end.hear(this);
  }

  #refuse(error: Error): void {
    this.#settle();
    this.#end.forget();
    try {
      this.#edge.refuse(this.#end, error);
    } catch (defect) {
      this.#edge.fault(this.#end, defect as Error);
    }
  }

  #settle(): void {
    if (this.due === 0) return;
    deadlines.leave(this);
    if (this.#isLong) longHeads--;
    this.#isLong = false;
  }
}
