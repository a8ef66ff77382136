import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import net, { type AddressInfo, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { afterEach } from 'node:test';
import { Sending } from './sending.ts';
import { Http2Session } from './session.ts';
import { DEFAULT_SETTINGS } from './settings.ts';

/** Run after each test, the last first. */
export const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0).reverse()) cleanup();
});

export const SETTINGS = {
  initialWindowSize: 64 * 1024,
  maxConcurrentStreams: 1000,
  maxFrameSize: 32 * 1024,
  maxHeaderListSize: 16 * 1024,
};

/** A sending side without another side, and what has left: each frame but DATA whole, from the next turn on. */
export function recorded(): { sending: Sending; frames: Buffer[] } {
  const frames: Buffer[] = [];
  const socket = new Duplex({
    read() {},
    writev(chunks, done) {
      frames.push(...chunks.map(({ chunk }) => chunk));
      done();
    },
  });
  const { maxFrameSize, initialWindowSize } = DEFAULT_SETTINGS;
  const limits = { maxFrame: maxFrameSize, window: initialWindowSize };
  return { sending: new Sending(socket, limits, () => assert.fail('no frame waits')), frames };
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

/** Two sessions of ours that talk to each other. */
export async function sessionPair(): Promise<{ client: Http2Session; server: Http2Session }> {
  const [clientSocket, serverSocket] = await socketPair();
  const client = new Http2Session({ role: 'client', socket: clientSocket, settings: SETTINGS });
  const server = new Http2Session({ role: 'server', socket: serverSocket, settings: SETTINGS });
  return { client, server };
}

/** Our server, and a client of Node's. */
export async function withNodeClient(): Promise<{ client: http2.ClientHttp2Session; server: Http2Session }> {
  const [clientSocket, serverSocket] = await socketPair();
  const server = new Http2Session({ role: 'server', socket: serverSocket, settings: SETTINGS });
  const client = http2.connect('http://x', { createConnection: () => clientSocket });
  client.on('error', () => {});
  return { client, server };
}

/** Our client, and a server of Node's that gives each stream to `serve`. */
export async function withNodeServer(
  serve: (stream: http2.ServerHttp2Stream, head: http2.IncomingHttpHeaders) => void,
): Promise<{ client: Http2Session; server: http2.Http2Server }> {
  const [clientSocket, serverSocket] = await socketPair();
  const server = http2.createServer();
  server.on('stream', (stream, head) => {
    stream.on('error', () => {});
    serve(stream, head);
  });
  server.emit('connection', serverSocket);
  const client = new Http2Session({ role: 'client', socket: clientSocket, settings: SETTINGS });
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
