import { adminApi, adminDescriptors } from '@isthmus/proto/admin';
import { createServer, type Server, ServerError, type ServerMiddleware, Status } from 'nice-grpc';
import { HealthDefinition, HealthServiceImpl, HealthState } from 'nice-grpc-server-health';
import { ServerReflection, ServerReflectionService } from 'nice-grpc-server-reflection';
import type { AdminBackend } from './admin-backend.ts';
import { adminService } from './admin-service.ts';
import { type PrivateSocket, privateSocket } from './private-socket.ts';

export interface AdminRpc {
  /** The unix socket that it listens on. */
  readonly path: string;
  /** Ends every connection and removes the socket. */
  close(): Promise<void>;
}

/** A client that asks nothing for so long is ended: it may be gone. */
const IDLE_CONNECTION_MS = 300_000;
/** One that does not answer a ping is gone, whatever it watches: a machine that fell silent ends no connection. */
const PING_EVERY_MS = 60_000;
const PING_TIMEOUT_MS = 20_000;
/** How soon those who watch the health learn of a change. */
const WATCH_MS = 1000;

/**
 * The admin RPC with health (grpc.health.v1) and reflection (grpc.reflection.v1), on a unix socket that only this user may
 * reach. nice-grpc's server takes no connections that someone else accepted, and the admin port also speaks HTTP/1.1.
 */
export async function serveRpc(backend: AdminBackend, ready: () => boolean): Promise<AdminRpc> {
  const health = healthState(ready);
  const server = createServer({
    'grpc.max_connection_idle_ms': IDLE_CONNECTION_MS,
    'grpc.keepalive_time_ms': PING_EVERY_MS,
    'grpc.keepalive_timeout_ms': PING_TIMEOUT_MS,
  }).use(withReasons);
  server.add(adminApi.AdminDefinition, adminService(backend));
  server.add(HealthDefinition, HealthServiceImpl(health));
  // What is listed must also be described, or clients that read all of it fail; the others' descriptors are not at hand.
  server.add(ServerReflectionService, ServerReflection(adminDescriptors(), [adminApi.AdminDefinition.fullName]));

  const socket = await listen(server);
  const watch = setInterval(() => health.emit('change', { status: health.getStatus(), service: '' }), WATCH_MS);
  watch.unref();
  return {
    path: socket.path,
    async close() {
      clearInterval(watch);
      server.forceShutdown();
      await socket.remove();
    },
  };
}

/** The health of the program, and of the RPC as its part: what `ready` says at the moment when someone asks. */
function healthState(ready: () => boolean): HealthState {
  const services = ['', adminApi.AdminDefinition.fullName];
  const state = HealthState();
  // One listener for each watching call.
  state.setMaxListeners(0);
  return Object.assign(state, {
    getStatus: (service = '') => (services.includes(service) ? (ready() ? 'healthy' : 'unhealthy') : 'unknown'),
  } satisfies Pick<HealthState, 'getStatus'>);
}

async function listen(server: Server): Promise<PrivateSocket> {
  const socket = await privateSocket();
  try {
    await server.listen(`unix://${socket.path}`);
    return socket;
  } catch (error) {
    await socket.remove();
    throw error;
  }
}

/** Tells clients why a call failed: nice-grpc says only that it did. Who may ask here may also read the log. */
const withReasons: ServerMiddleware = async function* withReasons(call, context) {
  try {
    return yield* call.next(call.request, context);
  } catch (error) {
    if (!(error instanceof Error) || error instanceof ServerError || error.name === 'AbortError') throw error;
    throw new ServerError(Status.INTERNAL, error.message);
  }
};
