import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
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
import { fromTheStart, type Listener, type ListenOptions, listen } from '../listen/listen.ts';
import { peerSubject } from '../tls/certificate.ts';

export interface PeerServerOptions {
  readonly host: string;
  readonly port: number;
  /**
   * The path of a unix socket where gateways of this machine connect without TLS. Whoever may open it may dial for every tenant. Unset:
   * none.
   */
  readonly socket?: string | undefined;
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
  const { host, port, socket: path, tls, events } = options;
  const links = new Set<LinkServer>();
  let draining = false;
  const accept = (socket: Socket) => {
    const overTls = socket instanceof TLSSocket ? socket : undefined;
    const peer = `gateway ${(overTls && peerSubject(overTls)) ?? remoteOf(socket)}`;
    const dial = overTls ? dialOf(overTls, peer, options) : options.dial;
    const link = new LinkServer({ socket, peer, role: 'hub', dial, events });
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
  const common = { http2: fromTheStart(accept), events, name: 'peers' } as const;
  const listener = await listen({ ...common, address: { host, port }, tls, role: GATEWAY_NAME });
  const local = path === undefined ? undefined : await listenHere(path, common, listener);
  const listeners = local ? [listener, local] : [listener];
  const stop = async () => void (await Promise.all(listeners.map((each) => each.stop())));
  return {
    address: listener.address,
    get connections() {
      return listeners.flatMap(({ connections }) => [...connections]);
    },
    stop,
    drain() {
      draining = true;
      void stop();
      for (const link of links) link.close();
    },
    async close() {
      for (const link of links) link.destroy(new Error('hub stops'));
      await Promise.all(listeners.map((each) => each.close()));
    },
  };
}

/** Closes the other listener if it cannot listen: the file may belong to a living process, or the directory deny it. */
async function listenHere(
  path: string,
  common: Pick<ListenOptions, 'http2' | 'events' | 'name'>,
  other: Listener,
): Promise<Listener> {
  try {
    return await listen({ ...common, address: { path, deleteExisting: true } });
  } catch (error) {
    await other.close();
    throw error;
  }
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
