import type { Caller, Dial, PlaneEvents } from '@isthmus/tunnel';
import { servePackets } from '../packets/serve.ts';
import type { ServerCall } from './call.ts';
import type { GrpcPeer } from './grpc-peer.ts';
import { type GrpcService, PROXY_METHOD } from './service.ts';

/**
 * How long a caller may take between opening a stream and dialling, in milliseconds. An API server does both at once. A stream without
 * a dial would stay as long as its connection.
 */
const FIRST_DIAL_MS = 30_000;

export interface ProxyServiceOptions {
  readonly dial: Dial;
  readonly tenant: string;
  readonly events: PlaneEvents;
  /** How long a dial may take, in milliseconds. */
  readonly timeout: number;
  /** Milliseconds; for tests. */
  readonly firstDialMs?: number;
  /** Names a caller. Default: the subject of its certificate, or its address. */
  readonly identify?: (peer: GrpcPeer) => string;
}

/** The callers' gRPC edge, as API servers use it: one stream a dial. */
export function proxyService(options: ProxyServiceOptions): GrpcService {
  return { path: PROXY_METHOD, serve: (call) => serve(call, options) };
}

function serve(call: ServerCall, options: ProxyServiceOptions): void {
  const { dial, tenant, events, timeout, firstDialMs = FIRST_DIAL_MS, identify = identity } = options;
  const caller: Caller = { via: 'grpc', identity: identify(call.peer), remote: call.peer.remote };
  const traceparent = call.metadata.first('traceparent');
  events.emit('caller:open', 'grpc');
  const refuse = () => {
    const error = new Error(`no dial within ${firstDialMs / 1000} s`);
    served.destroy(error);
    events.emit('refused', 'callers', call.peer.remote, error);
  };
  const late = setTimeout(call.guarded(refuse), firstDialMs).unref();
  const served = servePackets(call, {
    role: 'gateway',
    dial(request) {
      clearTimeout(late);
      return dial(request);
    },
    tenant,
    events,
    caller,
    limits: { dialMs: timeout },
    ...(traceparent !== undefined && { traceparent }),
  });
  const gone = () => {
    clearTimeout(late);
    events.emit('caller:close', 'grpc');
  };
  void served.closed.then(call.guarded(gone));
}

function identity({ subject, remote }: GrpcPeer): string {
  return subject ?? remote;
}
