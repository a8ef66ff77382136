import { randomInt } from 'node:crypto';
import { type ClientHttp2Session, type ClientHttp2Stream, connect as connectHttp2 } from 'node:http2';
import { connect as connectSocket } from 'node:net';
import { Duplex } from 'node:stream';
import { decodePacket, encodePacket, type Packet } from '@isthmus/proto';
import { brokenOff, type Call, CallError } from './connect.ts';

const HEADERS = {
  ':method': 'POST',
  ':path': '/ProxyService/Proxy',
  'content-type': 'application/grpc',
  te: 'trailers',
};
const UNAVAILABLE = '14';
/** Upstream's server identifies a dial that has no answer yet only by its number. */
const MOST_RANDOM = 2 ** 47;
/** A flag and four bytes of length precede each gRPC message. */
const PREFIX = 5;

/**
 * ProxyService over a unix socket, with one connection per dial. It uses bare HTTP/2: a grpc-js client takes three times the processor
 * time.
 * @param window how many bytes may be sent ahead of this caller, if not HTTP/2's default
 */
export function grpcCall(uds: string, destination: string, window?: number): Call {
  const settings = window === undefined ? {} : { settings: { initialWindowSize: window } };
  const session = connectHttp2('http://localhost', { ...settings, createConnection: () => connectSocket(uds) });
  if (window !== undefined) session.once('connect', () => session.setLocalWindowSize(window));
  const stream = session.request(HEADERS);
  const tunnel = new GrpcTunnel(session, stream);
  const answer = new Promise<Duplex>((resolve, reject) => {
    let leaves = false;
    let failure: NodeJS.ErrnoException | undefined;
    session.on('goaway', () => {
      leaves = true;
    });
    stream.on('trailers', (trailers) => {
      leaves ||= trailers['grpc-status'] === UNAVAILABLE;
    });
    for (const source of [session, stream]) {
      source.on('error', (error: NodeJS.ErrnoException) => {
        failure ??= error;
      });
    }
    const over = () => reject(leaves ? new CallError('draining', 'the gateway goes away') : brokenOff(failure));
    stream.once('close', over).once('end', over);
    tunnel.onAnswer = (error) => {
      stream.off('close', over).off('end', over);
      if (error) reject(new CallError('failed', error));
      else resolve(tunnel);
    };
    tunnel.send({ type: 'DIAL_REQ', protocol: 'tcp', address: destination, random: BigInt(randomInt(MOST_RANDOM)) });
  });
  return { answer, end: () => tunnel.destroy() };
}

/** The caller's end of a tunnel over packets. There is no half-close: `end()` sends CLOSE_REQ. */
class GrpcTunnel extends Duplex {
  onAnswer: (error: string) => void = () => {};
  readonly #session: ClientHttp2Session;
  readonly #stream: ClientHttp2Stream;
  #connectID = 0n;
  #rest: Buffer = Buffer.alloc(0);
  /** Whether the tunnel has ended in order. */
  #ended = false;

  constructor(session: ClientHttp2Session, stream: ClientHttp2Stream) {
    super({ allowHalfOpen: true });
    this.#session = session;
    this.#stream = stream;
    this.on('error', () => {});
    stream.on('data', (chunk: Buffer) => this.#take(chunk));
    // After the tunnel's end, its reader may not have read everything yet.
    stream.once('close', () => this.#ended || this.destroy());
  }

  send(packet: Packet, done?: () => void): void {
    const message = encodePacket(packet);
    const framed = Buffer.allocUnsafe(PREFIX + message.length);
    framed[0] = 0;
    framed.writeUInt32BE(message.length, 1);
    framed.set(message, PREFIX);
    this.#stream.write(framed, done);
  }

  #take(chunk: Buffer): void {
    let rest = this.#rest.length > 0 ? Buffer.concat([this.#rest, chunk]) : chunk;
    while (rest.length >= PREFIX) {
      const end = PREFIX + rest.readUInt32BE(1);
      if (rest.length < end) break;
      this.#receive(decodePacket(rest.subarray(PREFIX, end)));
      rest = rest.subarray(end);
    }
    this.#rest = rest;
  }

  #receive(packet: Packet): void {
    if (packet.type === 'DIAL_RSP') {
      this.#connectID = packet.connectID;
      this.onAnswer(packet.error);
    } else if (packet.type === 'DATA') {
      if (!this.push(packet.data)) this.#stream.pause();
    } else if (packet.type === 'CLOSE_RSP') {
      this.#ended = true;
      this.push(null);
    }
  }

  override _read(): void {
    this.#stream.resume();
  }

  override _write(data: Buffer, _encoding: string, done: () => void): void {
    this.send({ type: 'DATA', connectID: this.#connectID, error: '', data }, () => done());
  }

  override _final(done: () => void): void {
    this.send({ type: 'CLOSE_REQ', connectID: this.#connectID });
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#stream.destroy();
    this.#session.destroy();
    done(error);
  }
}
