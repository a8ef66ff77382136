import type { Caller, Dial, PlaneEvents } from '@isthmus/tunnel';
import { servePackets } from '../packets/serve.ts';
import type { ServerCall } from './call.ts';
import type { GrpcPeer } from './peer.ts';
import { type GrpcService, PROXY_METHOD } from './service.ts';

export interface ProxyServiceOptions {
  readonly dial: Dial;
  readonly tenant: string;
  readonly events: PlaneEvents;
  /** How long a dial may take, in milliseconds. */
  readonly timeout: number;
  /** Who a caller is. Default: the subject of its certificate, or where it comes from. */
  readonly identify?: (peer: GrpcPeer) => string;
}

/** The callers' gRPC edge, as API servers use it: one stream a dial. */
export function proxyService(options: ProxyServiceOptions): GrpcService {
  return { path: PROXY_METHOD, serve: (call) => serve(call, options) };
}

function serve(call: ServerCall, options: ProxyServiceOptions): void {
  const { dial, tenant, events, timeout, identify = identity } = options;
  const caller: Caller = { via: 'grpc', identity: identify(call.peer), remote: call.peer.remote };
  const traceparent = call.metadata.first('traceparent');
  events.emit('caller:open', 'grpc');
  const served = servePackets(call, {
    role: 'gateway',
    dial,
    tenant,
    events,
    caller,
    limits: { dialMs: timeout },
    ...(traceparent !== undefined && { traceparent }),
  });
  void served.closed.then(() => events.emit('caller:close', 'grpc'));
}

function identity({ subject, remote }: GrpcPeer): string {
  return subject ?? remote;
}
