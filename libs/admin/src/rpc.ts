import { once } from 'node:events';
import type { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import { Server, ServerCredentials, type ServerWritableStream } from '@grpc/grpc-js';
import { adminApi } from '@isthmus/proto/admin';
import { onceClosed } from '@isthmus/runtime';
import { ServerError, type TsProtoServiceDefinition } from 'nice-grpc';
import type { Method } from './access/guard.ts';
import { visitorOf } from './access/visitor.ts';
import type { AdminBackend } from './backend.ts';
import { internal } from './calls/messages.ts';
import { ADMIN } from './defaults.ts';
import { type Answering, answering } from './service.ts';

/**
 * Adds a service with one request per call to grpc-js's server. nice-grpc has a server for such implementations, but it only takes
 * connections that it accepts itself.
 */
function addService(server: Server, { fullName, methods }: TsProtoServiceDefinition, respond: Answering): void {
  for (const [key, { name, requestType, responseType }] of Object.entries(methods)) {
    const serialize = (message: unknown) => {
      return Buffer.from(responseType.encode(responseType.fromPartial?.(message) ?? message).finish());
    };
    const handle = (call: ServerWritableStream<object, unknown>) => {
      void answer(call, (signal) => respond(key as Method, call.request, signal));
    };
    // A unary call is one that streams a single response.
    server.register(`/${fullName}/${name}`, handle, serialize, requestType.decode, 'serverStream');
  }
}

/** Sends the responses of a method, or the reason why it failed. Clients with access here may also read the log. */
async function answer(call: Writable, respond: (signal: AbortSignal) => ReturnType<Answering>): Promise<void> {
  const gone = new AbortController();
  const { signal } = gone;
  call.once('cancelled', () => gone.abort());
  try {
    for await (const response of respond(signal)) {
      if (!call.write(response)) await once(call, 'drain', { signal });
    }
    call.end();
  } catch (error) {
    call.emit('error', error instanceof ServerError ? error : internal((error as Error).message));
  }
}

/** Serves the admin RPC on a connection: a server for each, because what a call may do depends on who is connected, and calls do not tell. */
export function serveRpc(socket: Socket, backend: AdminBackend): void {
  const server = new Server({
    'grpc.max_connection_idle_ms': ADMIN.idleConnectionMs,
    'grpc.keepalive_time_ms': ADMIN.pingEveryMs,
    'grpc.keepalive_timeout_ms': ADMIN.pingTimeoutMs,
    // Its registry is for the whole process, and nobody asks it.
    'grpc.enable_channelz': 0,
  });
  addService(server, adminApi.AdminDefinition, answering(visitorOf(socket), backend));
  onceClosed(socket, () => server.forceShutdown());
  // The admin port has checked the client: TLS ends there.
  server.createConnectionInjector(ServerCredentials.createInsecure()).injectConnection(socket);
}
