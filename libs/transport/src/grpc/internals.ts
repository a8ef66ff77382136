import type { Http2Server, ServerHttp2Stream, Settings } from 'node:http2';
import type { Socket } from 'node:net';
import type { Server } from '@grpc/grpc-js';

/**
 * What a server needs and grpc-js 1.14 does not offer: the HTTP/2 stream and socket under a call, the windows of a server's
 * connections, and their list. Read from its private fields; its version is pinned, and a change of shape fails at the start.
 */

/** The HTTP/2 stream under a server's call. */
export function streamOf(call: object): ServerHttp2Stream {
  return field(field(call, 'call'), 'stream') as ServerHttp2Stream;
}

/** The connection under a server's call; undefined once it is gone. */
export function socketOf(call: object): Socket | undefined {
  return streamOf(call).session?.socket as Socket | undefined;
}

/** Settings that the connections of a server start with. To be called before it has an injector. */
export function setSettings(server: Server, settings: Settings): void {
  (field(server, 'commonServerOptions') as { settings?: Settings }).settings = settings;
}

/** The HTTP/2 servers in a gRPC server. */
export function http2Servers(server: Server): Http2Server[] {
  return [...(field(server, 'http2Servers') as Map<Http2Server, unknown>).keys()];
}

function field(object: object, name: string): object {
  const value: unknown = Reflect.get(object, name);
  if (typeof value !== 'object' || value === null) throw new Error(`this grpc-js has no field ${name}: want 1.14`);
  return value;
}
