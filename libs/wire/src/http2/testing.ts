import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import net, { type AddressInfo, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { afterEach } from 'node:test';
import { setImmediate as tick } from 'node:timers/promises';
import { type Config, WIRE } from '../defaults.ts';
import { Http2Link } from '../link/link.ts';
import { FRAME_HEAD, FrameType } from './frames.ts';
import { encodeHead, type Field } from './heads.ts';
import { Output } from './output.ts';
import { FrameReader, Reading } from './reading.ts';
import type { Http2Stream } from './stream.ts';
import { type StreamRules, Streams } from './streams.ts';
import { ConnectionReads } from './ticks.ts';

/** Run after each test, the last first. */
export const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0).reverse()) cleanup();
});

export const CONFIG: Config = {
  ...WIRE,
  windowBytes: 64 * 1024,
  streams: 1000,
  frameBytes: 32 * 1024,
  headBytes: 16 * 1024,
};

/** The sending side of a connection without another side, and what has left: each write, from the next turn on. */
export function recorded(config: Config): { output: Output; frames: Buffer[] } {
  const frames: Buffer[] = [];
  const reader = new FrameReader(
    {
      frame: (type, flags, id, payload) => frames.push(raw(type, flags, id, Buffer.from(payload))),
      data: (id, bytes, flags) => frames.push(raw(FrameType.DATA, flags, id, Buffer.from(bytes))),
    },
    2 ** 24,
  );
  const socket = new Duplex({
    read() {},
    write(chunk: Buffer, _encoding, done) {
      reader.read(chunk);
      done();
    },
  });
  const failed = () => assert.fail('no frame waits');
  const output = new Output({
    socket,
    greeting: Buffer.alloc(0),
    defer: setImmediate,
    config: { ...config, backlogBytes: 2 ** 30 },
    checkpoint: () => Buffer.alloc(0),
    failed,
  });
  return { output, frames };
}

export const HEAD = { ':method': 'CONNECT', ':authority': 'h:1' };

export type Role = 'client' | 'server';

/** What became of a stream: the other side has ended, or it closed, with the code of a reset. */
export type End = [id: number, end: 'remote' | number | undefined];

/** Streams whose other side is played by the test, and what became of them. */
export function streamsOf(role: Role, { rules = {}, ...config }: { rules?: StreamRules } & Partial<Config> = {}) {
  const { output, frames } = recorded({ ...CONFIG, ...config });
  const counts = { idle: 0, settings: 0, pongs: 0 };
  const pings: Buffer[] = [];
  const goaways: (string | undefined)[] = [];
  const ends: End[] = [];
  const opened: number[] = [];
  const faceOf = (stream: Http2Stream) => {
    const { id } = stream;
    const onEnd = () => ends.push([id, 'remote']);
    const onClose = (code: number | undefined) => ends.push([id, code]);
    stream.handler = { onHeaders() {}, onData() {}, onWritable() {}, onEnd, onClose };
    return stream;
  };
  const streams = new Streams({
    role,
    rules,
    output,
    rtt: () => 0,
    opened: (stream) => void opened.push(faceOf(stream).id),
    idle: () => void counts.idle++,
  });
  const sink = {
    reads: new ConnectionReads(),
    onSettings: () => void counts.settings++,
    onPing: (opaque: Buffer) => void pings.push(Buffer.from(opaque)),
    onPong: () => void counts.pongs++,
    onGoaway: (reason?: Error) => void goaways.push(reason?.message),
  };
  const reading = new Reading({ role, streams, output, sink });
  return {
    ...{ streams, reading, output, counts, pings, goaways, ends, opened, sink },
    /** Opens a stream: the client's own, or one of the other side. */
    open(id: number, fields: readonly Field[] = Object.entries(HEAD), ends = false): Http2Stream {
      if (role === 'client') return faceOf(streams.request(encodeHead(HEAD)));
      streams.receiveHead({ stream: id, fields, ends });
      return streams.get(id) as Http2Stream;
    },
    /** What has been sent since the last call: type, stream, and a number if it is the payload, or the length of DATA. */
    async sent(): Promise<[type: number, id: number, value: number][]> {
      await tick();
      return frames.splice(0).map((frame) => {
        const [type, id, length] = [frame[3] as number, frame.readUInt32BE(5), frame.length - FRAME_HEAD];
        return [type, id, type !== FrameType.DATA && length === 4 ? frame.readUInt32BE(FRAME_HEAD) : length];
      });
    },
  };
}

/** A frame of any kind. @param length what its head says of the payload's length */
export function raw(type: number, flags: number, stream: number, payload: Buffer, length = payload.length): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** Two connected sockets. */
export async function socketPair(): Promise<[client: Socket, server: Socket]> {
  const listener = net.createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const client = net.connect((listener.address() as AddressInfo).port, '127.0.0.1');
  const [server] = (await once(listener, 'connection')) as [Socket];
  listener.close();
  for (const socket of [client, server]) {
    socket.setNoDelay(true).on('error', () => {});
    cleanups.push(() => socket.destroy());
  }
  return [client, server];
}

/** Two links of ours that talk to each other. */
export async function linkPair(): Promise<{ client: Http2Link; server: Http2Link }> {
  const [clientSocket, serverSocket] = await socketPair();
  const client = new Http2Link({ role: 'client', socket: clientSocket, config: CONFIG });
  const server = new Http2Link({ role: 'server', socket: serverSocket, config: CONFIG });
  return { client, server };
}

/** Our server, and a client of Node's. */
export async function withNodeClient(): Promise<{ client: http2.ClientHttp2Session; server: Http2Link }> {
  const [clientSocket, serverSocket] = await socketPair();
  const server = new Http2Link({ role: 'server', socket: serverSocket, config: CONFIG });
  const client = http2.connect('http://x', { createConnection: () => clientSocket });
  client.on('error', () => {});
  return { client, server };
}

/** Our client, and a server of Node's that gives each stream to `serve`. */
export async function withNodeServer(
  serve: (stream: http2.ServerHttp2Stream, head: http2.IncomingHttpHeaders) => void,
): Promise<{ client: Http2Link; server: http2.Http2Server }> {
  const [clientSocket, serverSocket] = await socketPair();
  const server = http2.createServer();
  server.on('stream', (stream, head) => {
    stream.on('error', () => {});
    serve(stream, head);
  });
  server.emit('connection', serverSocket);
  const client = new Http2Link({ role: 'client', socket: clientSocket, config: CONFIG });
  return { client, server };
}

/** All that a stream brings. @throws what it failed with, or that it closed without an end */
export async function readAll(stream: NodeJS.ReadableStream): Promise<Buffer> {
  const chunks: Buffer[] = [];
  await new Promise<void>((resolve, reject) => {
    stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    stream.once('end', resolve).once('error', reject);
    stream.once('close', () => reject(new Error('closed without an end')));
  });
  return Buffer.concat(chunks);
}
