import { once } from 'node:events';
import http2, {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  type ClientSessionOptions,
  type IncomingHttpHeaders,
} from 'node:http2';
import net, { type AddressInfo, type Socket } from 'node:net';
import { decodePacket, encodePacket, type Packet } from '@isthmus/proto';
import { planeEvents } from '@isthmus/tunnel';
import type { PacketSink, ServerCall } from '@isthmus/wire';
import { cleanups } from '../../testing/cleanups.ts';
import { GrpcServer, type GrpcServerOptions, type GrpcService } from '../server.ts';

export const WINDOW = 64 * 1024;
export const PATH = '/Test/Echo';

/** Sends back every packet; ends with the caller. */
export function echo(call: ServerCall): PacketSink {
  return { packet: (packet) => void call.send(packet), drain() {}, closed() {} };
}

export async function serve(
  serveCall: GrpcService['serve'] = (call) => call.start(echo(call)),
  more: Partial<GrpcServerOptions> = {},
) {
  const events = planeEvents();
  const server = new GrpcServer({
    service: { path: PATH, serve: serveCall },
    events,
    name: 'test',
    keepaliveMs: 3_600_000,
    streamWindow: WINDOW,
    ...more,
  });
  const sockets = new Set<Socket>();
  const listener = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    sockets.add(socket.on('error', () => {}));
    // As a listener does that tells protocols apart.
    socket.once('data', (first: Buffer) => server.accept(socket, first));
  });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  cleanups.push(async () => {
    listener.close();
    await server.close(0);
    for (const socket of sockets) socket.destroy();
  });
  return { server, events, sockets, port: (listener.address() as AddressInfo).port };
}

export function connect(port: number): ClientHttp2Session {
  // Node's types leave the option out.
  const options = { maxOutstandingSettings: 1000 } as ClientSessionOptions;
  const session = http2.connect(`http://127.0.0.1:${port}`, options);
  session.on('error', () => {});
  cleanups.push(() => session.destroy());
  return session;
}

export const HEAD = { ':method': 'POST', ':path': PATH, 'content-type': 'application/grpc', te: 'trailers' };

export interface Reply {
  readonly stream: ClientHttp2Stream;
  readonly head: Promise<IncomingHttpHeaders>;
  /** The trailers, or the head where there is nothing else. */
  readonly status: Promise<IncomingHttpHeaders>;
  readonly packets: Packet[];
}

export function open(session: ClientHttp2Session, over: Record<string, string> = {}): Reply {
  const stream = session.request({ ...HEAD, ...over });
  stream.on('error', () => {});
  const head = Promise.withResolvers<IncomingHttpHeaders>();
  const status = Promise.withResolvers<IncomingHttpHeaders>();
  const packets: Packet[] = [];
  let rest = Buffer.alloc(0);
  stream.on('response', (fields) => {
    head.resolve(fields);
    if (fields['grpc-status'] !== undefined) status.resolve(fields);
  });
  stream.on('trailers', (fields) => status.resolve(fields));
  stream.on('data', (chunk: Buffer) => {
    rest = Buffer.concat([rest, chunk]);
    while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
      const end = 5 + rest.readUInt32BE(1);
      packets.push(decodePacket(rest.subarray(5, end)));
      rest = rest.subarray(end);
    }
  });
  return { stream, packets, head: head.promise, status: status.promise };
}

export function message(packet: Packet, flag = 0): Buffer {
  const bytes = encodePacket(packet, 5);
  bytes[0] = flag;
  bytes.writeUInt32BE(bytes.length - 5, 1);
  return bytes;
}

export const data = (connectID: bigint, bytes: Buffer): Packet => ({ type: 'DATA', connectID, error: '', data: bytes });
