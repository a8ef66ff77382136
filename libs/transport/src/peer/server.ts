import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { remoteOf, type TlsSettings } from '@isthmus/runtime';
import {
  type Dial,
  DialError,
  GATEWAY_NAME,
  type GatewayLoss,
  NotAuthorised,
  type PlaneEvents,
  printable,
} from '@isthmus/tunnel';
import { LinkServer } from '../link/server.ts';
import { fromTheStart, type Listener, listen } from '../listen/listen.ts';
import { peerSubject } from '../tls/certificate.ts';

export interface PeerServerOptions {
  readonly host: string;
  readonly port: number;
  /** With `ca`: serves only gateways whose certificate is from it and proves a gateway's role. */
  readonly tls: TlsSettings;
  readonly dial: Dial;
  /** The tenants for which a gateway may dial, by its certificate. Undefined: for all. Unset: every gateway may. */
  readonly tenantsOf?: ((gateway: X509Certificate) => ReadonlySet<string> | undefined) | undefined;
  readonly events: PlaneEvents;
  /** Called when the last connection to a gateway's process has ended, without a word of it. */
  readonly hungUp?: (loss: GatewayLoss) => void;
}

export interface PeerServer extends Pick<Listener, 'address' | 'connections' | 'stop' | 'close'> {
  /** Accepts no new gateways, asks the connected ones to dial elsewhere, and lets running tunnels finish. */
  drain(): void;
}

/** The hub's peer port: accepts gateways' links and serves their dials. */
export async function servePeers(options: PeerServerOptions): Promise<PeerServer> {
  const { host, port, tls, events } = options;
  const links = new Set<LinkServer>();
  let draining = false;
  const accept = (socket: Socket) => {
    const peer = `gateway ${peerSubject(socket as TLSSocket) ?? remoteOf(socket)}`;
    const link = new LinkServer({
      socket,
      peer,
      role: 'hub',
      dial: dialOf(socket as TLSSocket, peer, options),
      events,
    });
    links.add(link);
    void link.closed.then((reason) => {
      links.delete(link);
      const loss = link.lossFor(reason);
      // It may have another link already.
      if (loss && ![...links].some(({ gateway }) => gateway === loss.gateway)) options.hungUp?.(loss);
    });
    // It connected while the hub began to drain.
    if (draining) link.close();
  };
  const http2 = fromTheStart(accept);
  const listener = await listen({ address: { host, port }, tls, role: GATEWAY_NAME, http2, events, name: 'peers' });
  return {
    address: listener.address,
    connections: listener.connections,
    stop: listener.stop,
    drain() {
      draining = true;
      void listener.stop();
      for (const link of links) link.close();
    },
    async close() {
      for (const link of links) link.destroy(new Error('hub stops'));
      await listener.close();
    },
  };
}

/** What a gateway may dial. Each dial is checked: a gateway names the tenant that it dials for. */
function dialOf(socket: TLSSocket, peer: string, { dial, tenantsOf, events }: PeerServerOptions): Dial {
  const certificate = socket.getPeerX509Certificate();
  const tenants = certificate && tenantsOf?.(certificate);
  if (!tenants) return dial;
  return (request) => {
    if (tenants.has(request.tenant)) return dial(request);
    const names = [...tenants].join(', ') || 'no tenant';
    const text = `${peer} may not dial for tenant ${printable(request.tenant)}: its certificate is for ${names}`;
    const refusal = new NotAuthorised(text, { rule: `SPIFFE IDs of ${peer}` });
    events.emit('refused', 'peers', remoteOf(socket), refusal);
    return Promise.reject(new DialError('http_request_denied', text, { cause: refusal }));
  };
}
