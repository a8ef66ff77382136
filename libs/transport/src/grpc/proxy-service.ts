import type { ServerDuplexStream } from '@grpc/grpc-js';
import type { Packet } from '@isthmus/proto';
import type { Caller, Dial, PlaneEvents } from '@isthmus/tunnel';
import { servePackets } from '../packets/serve.ts';
import { serverChannel } from './channel.ts';
import { type GrpcPeer, peerOf } from './peer.ts';
import { type GrpcService, PROXY_METHOD, packetMethod, type Received } from './service.ts';

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
  return {
    definition: packetMethod('Proxy', PROXY_METHOD),
    implementation: { Proxy: (call: ServerDuplexStream<Received, Packet>) => serve(call, options) },
  };
}

function serve(call: ServerDuplexStream<Received, Packet>, options: ProxyServiceOptions): void {
  const { dial, tenant, events, timeout, identify = identity } = options;
  const peer = peerOf(call);
  const caller: Caller = { via: 'grpc', identity: identify(peer) };
  const [traceparent] = call.metadata.get('traceparent');
  events.emit('caller:open', 'grpc');
  const served = servePackets(serverChannel(call, peer.remote), {
    role: 'gateway',
    dial,
    tenant,
    events,
    caller,
    limits: { dialMs: timeout },
    ...(typeof traceparent === 'string' && { traceparent }),
  });
  void served.closed.then(() => events.emit('caller:close', 'grpc'));
}

function identity({ subject, remote }: GrpcPeer): string {
  return subject ?? remote;
}
