import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import tls from 'node:tls';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { clientTlsOf, connectTls, keptAlive, lookupName, secured, type TlsFiles } from '@isthmus/runtime';
import { type Config, type DuplexStream, type Head, Http2Link, PREFIX, WIRE, writePrefix } from '@isthmus/wire';
import { TELEMETRY } from '../defaults.ts';

/** Where a collector is, and how to call it. */
export interface GrpcSettings {
  /** `http://host:port` or `https://host:port`. */
  readonly url: string;
  /** Sent with every call. */
  readonly headers: Readonly<Record<string, string>>;
  readonly gzip: boolean;
  /** Paths of PEM files, read again for each connection: the collector's authorities, and our certificate and key. */
  readonly ca: string | undefined;
  readonly cert: string | undefined;
  readonly key: string | undefined;
}

/** Limits on what the collector may send: an answer is a few bytes. */
const CONFIG: Config = { ...WIRE, windowBytes: 65_535, streams: 0, frameBytes: 16_384, headBytes: 16_384 };

/** The port of OTLP/gRPC, if the URL names none. */
const DEFAULT_PORT = 4317;

/** gRPC statuses after which OTLP retries: CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE and DATA_LOSS. */
const RETRYABLE = ['1', '4', '10', '11', '14', '15'];

/** HTTP statuses from a proxy in front of the collector that gRPC treats as UNAVAILABLE. */
const RETRYABLE_HTTP = ['429', '502', '503', '504'];

/** The collector, or a proxy in front of it, refused a call. */
export class Refused extends Error {
  /** Whether the call may be retried. */
  readonly retryable: boolean;

  constructor(text: string, retryable: boolean) {
    super(text);
    this.retryable = retryable;
  }
}

/**
 * Unary calls of one gRPC method, on one connection that is opened when there is something to send.
 *
 * They use our own HTTP/2 and TLS. OpenTelemetry's exporters for gRPC (0.223) send a batch only once, do not report what a collector
 * rejects, read certificates once, and judge the collector's by grpc-js' rules.
 */
export class GrpcCalls {
  readonly #settings: GrpcSettings;
  readonly #url: URL;
  readonly #path: string;
  readonly #files: TlsFiles;
  #link: Promise<Http2Link> | undefined;
  #socket: Socket | undefined;

  /** @throws TypeError if the URL is invalid */
  constructor(settings: GrpcSettings, path: string) {
    this.#settings = settings;
    this.#url = new URL(settings.url);
    this.#path = path;
    const { ca, cert, key } = settings;
    this.#files = cert !== undefined && key !== undefined ? { ca, cert, key } : { ca };
  }

  /**
   * @returns the message of the answer
   * @throws Refused if the collector refuses the call; another Error if the collector cannot be reached or does not answer in time. After
   *   such an Error, the next call opens a new connection
   */
  async send(message: Uint8Array, timeoutMs: number): Promise<Uint8Array> {
    const late = new Error(`no answer within ${Math.ceil(timeoutMs)} ms`);
    const timer = setTimeout(() => this.#socket?.destroy(late), timeoutMs);
    try {
      return await this.#call(message);
    } finally {
      clearTimeout(timer);
    }
  }

  close(): void {
    this.#socket?.destroy(new Error('export has ended'));
  }

  async #call(message: Uint8Array): Promise<Uint8Array> {
    const { headers, gzip } = this.#settings;
    const body = await framed(message, gzip);
    const link = await this.#connected();
    const stream = link.request({
      ':method': 'POST',
      ':scheme': this.#url.protocol.slice(0, -1),
      ':authority': this.#url.host,
      ':path': this.#path,
      'content-type': 'application/grpc',
      te: 'trailers',
      ...headers,
      ...(gzip && { 'grpc-encoding': 'gzip' }),
    });
    try {
      stream.end(body);
      const { head, body: answer } = await answered(stream);
      const { 'grpc-status': status = '', 'grpc-message': text = '' } = head;
      if (status === '0') return answer.subarray(PREFIX);
      throw new Refused(`the collector answered with gRPC status ${status}: ${text}`, RETRYABLE.includes(status));
    } finally {
      stream.close();
    }
  }

  #connected(): Promise<Http2Link> {
    if (this.#link) return this.#link;
    const link = this.#connect();
    // A link that received GOAWAY may end after a new one has replaced it.
    const over = () => {
      if (this.#link === link) this.#link = undefined;
    };
    link.then((made) => made.once('goaway', over).once('close', over), over);
    this.#link = link;
    return link;
  }

  async #connect(): Promise<Http2Link> {
    const secure = this.#url.protocol === 'https:';
    const socket = secure ? this.#secured() : net.connect({ ...this.#place, lookup: lookupName });
    this.#socket = socket;
    await (socket instanceof tls.TLSSocket ? secured(socket) : once(socket, 'connect'));
    keptAlive(socket).setNoDelay(true);
    return new Http2Link({ role: 'client', socket, config: CONFIG });
  }

  #secured(): tls.TLSSocket {
    const { host, port } = this.#place;
    const to = { host, port, lookup: lookupName, ALPNProtocols: ['h2'], servername: host };
    return connectTls(to, clientTlsOf(this.#files), [host]);
  }

  get #place(): { readonly host: string; readonly port: number } {
    const { hostname, port } = this.#url;
    return { host: hostname.replace(/^\[|\]$/g, ''), port: port === '' ? DEFAULT_PORT : Number(port) };
  }
}

/** Frames a message for gRPC: whether it is compressed, its length, and the message. */
async function framed(message: Uint8Array, compress: boolean): Promise<Buffer> {
  const body = compress ? await promisify(gzip)(message) : message;
  const head = Buffer.alloc(PREFIX);
  writePrefix(head, body.length);
  if (compress) head[0] = 1;
  return Buffer.concat([head, body]);
}

interface Answer {
  /** The head that has the status: the trailers, or the only head if the call was refused immediately. */
  readonly head: Head;
  readonly body: Buffer;
}

function answered(stream: DuplexStream): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const answer = (head: Head) => resolve({ head, body: Buffer.concat(chunks) });
    stream.once('response', (head: Head) => {
      const status = String(head[':status']);
      if (head['grpc-status'] !== undefined) answer(head);
      else if (status !== '200') {
        reject(new Refused(`answered with HTTP status ${status}`, RETRYABLE_HTTP.includes(status)));
      }
    });
    stream.on('data', (chunk: Buffer) => {
      length += chunk.length;
      chunks.push(chunk);
      if (length > TELEMETRY.answerBytes)
        reject(new Refused(`answered with more than ${TELEMETRY.answerBytes} bytes`, false));
    });
    // The trailers may arrive before the data that precedes them is read.
    stream.once('trailers', (head: Head) => stream.once('end', () => answer(head)));
    // This listener stays: the stream may fail after the answer.
    stream.on('error', reject);
    stream.once('close', () => reject(new Error('the connection ended before the answer')));
  });
}
