import { DialError } from '@isthmus/tunnel';
import { Pieces } from '../head/pieces.ts';

/** The longest head that is read, in bytes. */
const MAX_HEAD = 16 * 1024;

const HEAD_END = '\r\n\r\n';

const REQUEST_LINE = /^([!#$%&'*+.^`|~\w-]+) ([\x21-\x7e\x80-\xff]+) HTTP\/(\d\.\d)$/;

/** A name without a space before the colon, a value without control characters, and no folding (RFC 9112 section 5). */
const FIELD = /^([!#$%&'*+.^`|~\w-]+):([\t\x20-\x7e\x80-\xff]*)$/;

const NO_LENGTH = /^0+$/;

/** What a CONNECT request asks for. */
export interface ConnectRequest {
  /** The request-target. Host cannot override it. */
  readonly target: string;
  readonly traceparent?: string;
  /** The bytes that arrived behind the head: the tunnel's first bytes. */
  readonly rest: Buffer;
}

/** A request that is not served, and the status to answer. */
export class RequestRefused extends DialError {
  readonly #status: number;

  constructor(status: number, message: string) {
    super('http_request_error', message);
    this.#status = status;
  }

  override get status(): number {
    return this.#status;
  }
}

/**
 * Reads the head of one CONNECT request (RFC 9112, RFC 9110 section 9.3.6). A caller's connection has no other HTTP ([why not
 * node:http](docs/adr/0002-one-http2-stream-per-tunnel.md)). Host is ignored, as in Go's server.
 */
export class ConnectReader {
  readonly #seen = new Pieces();

  /** Returns the request when its head is complete. Throws RequestRefused. */
  push(chunk: Buffer): ConnectRequest | undefined {
    const searched = Math.max(0, this.#seen.length - HEAD_END.length + 1);
    const bytes = this.#seen.add(chunk);
    // TLS and noise never contain the end of a head.
    if (!isLetter(bytes[0])) throw new RequestRefused(400, 'not an HTTP request');
    const end = bytes.indexOf(HEAD_END, searched);
    if (end > MAX_HEAD || (end < 0 && bytes.length > MAX_HEAD)) {
      throw new RequestRefused(431, `the request's head is longer than ${MAX_HEAD} bytes`);
    }
    return end < 0 ? undefined : parse(bytes.toString('latin1', 0, end), bytes.subarray(end + HEAD_END.length));
  }
}

function parse(head: string, rest: Buffer): ConnectRequest {
  const [requestLine = '', ...lines] = head.split('\r\n');
  const [, method, target, version] = REQUEST_LINE.exec(requestLine) ?? [];
  if (target === undefined) throw new RequestRefused(400, `not an HTTP request: ${shown(requestLine)}`);
  if (method !== 'CONNECT') throw new RequestRefused(405, `this port serves CONNECT, not ${shown(method)}`);
  if (version !== '1.1') throw new RequestRefused(400, `HTTP/${version} is not served: use HTTP/1.1`);
  const fields = lines.map(readField);
  if (fields.some(promisesBody)) throw new RequestRefused(400, 'a CONNECT request has no body');
  const traceparent = fields.find(([name]) => name === 'traceparent')?.[1];
  return { target: copied(target), rest, ...(traceparent !== undefined && { traceparent: copied(traceparent) }) };
}

type Field = readonly [name: string, value: string];

function promisesBody([name, value]: Field): boolean {
  return name === 'transfer-encoding' || (name === 'content-length' && !NO_LENGTH.test(value));
}

function readField(line: string): Field {
  const [, name, value = ''] = FIELD.exec(line) ?? [];
  if (name === undefined) throw new RequestRefused(400, `not a header field: ${shown(line)}`);
  return [name.toLowerCase(), value.trim()];
}

/** A substring keeps the whole string in memory, and these stay as long as the tunnel. */
function copied(part: string): string {
  return Buffer.from(part, 'latin1').toString('latin1');
}

function isLetter(byte = 0): boolean {
  return (byte >= 0x41 && byte <= 0x5a) || (byte >= 0x61 && byte <= 0x7a);
}

function shown(line = ''): string {
  return JSON.stringify(line.slice(0, 60));
}
