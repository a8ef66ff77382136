import { adminApi, adminDescriptors } from '@isthmus/proto/admin';
import { createServer, type Server, ServerError, type ServerMiddleware, Status } from 'nice-grpc';
import { HealthDefinition, HealthServiceImpl, HealthState } from 'nice-grpc-server-health';
import { ServerReflection, ServerReflectionService } from 'nice-grpc-server-reflection';
import type { AdminBackend } from '../backend.ts';
import { type PrivateSocket, privateSocket } from './private-socket.ts';
import { adminService } from './service.ts';

export interface AdminRpc {
  /** Path of the unix socket that it listens on. */
  readonly path: string;
  /** Closes every connection and removes the socket. */
  close(): Promise<void>;
}

/** A client without a call for this long may be gone, and is disconnected. */
const IDLE_CONNECTION_MS = 300_000;
/** A client that does not answer a ping is gone, even if it watches something: a dead machine closes no connection. */
const PING_EVERY_MS = 60_000;
const PING_TIMEOUT_MS = 20_000;
/** How soon watchers of the health service learn of a change. */
const WATCH_MS = 1000;

/**
 * Serves the admin RPC with health (grpc.health.v1) and reflection (grpc.reflection.v1), on a unix socket that only this user can
 * reach. It needs its own socket because nice-grpc's server cannot take connections accepted elsewhere, and the admin port also speaks
 * HTTP/1.1.
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
  // Reflection must describe every service that it lists, or clients that read them all fail. The descriptors of the others are not
  // available.
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

/** Returns the health of the program, which is also that of the RPC: the result of `ready` at the time of the call. */
function healthState(ready: () => boolean): HealthState {
  const services = ['', adminApi.AdminDefinition.fullName];
  const state = HealthState();
  // Each watching call adds one listener.
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

/** Tells clients why a call failed; nice-grpc reports only that it failed. Clients with access here may also read the log. */
const withReasons: ServerMiddleware = async function* withReasons(call, context) {
  try {
    return yield* call.next(call.request, context);
  } catch (error) {
    if (!(error instanceof Error) || error instanceof ServerError || error.name === 'AbortError') throw error;
    throw new ServerError(Status.INTERNAL, error.message);
  }
};
