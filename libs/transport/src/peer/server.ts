import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { type Certificate, presentedBy, remoteOf, type TlsSettings } from '@isthmus/runtime';
import {
  type Attach,
  type Dial,
  DialError,
  GATEWAY_NAME,
  type GatewayLoss,
  type Link,
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
  /**
   * The path of a unix socket where gateways of this machine connect without TLS. A process that can open it can dial, so it cannot be
   * combined with `tenantsOf`. Unset: none.
   */
  readonly socket?: string | undefined;
  /** With `ca`: serves only gateways whose certificate is from it and proves a gateway's role. */
  readonly tls: TlsSettings;
  readonly dial: Dial;
  readonly attach: Attach;
  /** The tenants for which a gateway may dial, by its certificate. Undefined: for all. Unset: every gateway may. */
  readonly tenantsOf?: ((gateway: Certificate) => ReadonlySet<string> | undefined) | undefined;
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
  const { host, port, socket: path, tls, tenantsOf, events } = options;
  if (path !== undefined && tenantsOf)
    throw new Error('a unix socket does not show for which tenants a gateway may dial');
  const links = new Set<LinkServer>();
  let draining = false;
  const accept = (socket: Socket, peer: string, { dial, attach }: Link) => {
    const link = new LinkServer({ socket, peer, role: 'hub', dial, attach, events });
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
  const http2 = fromTheStart((socket) => {
    const overTls = socket as TLSSocket;
    const peer = `gateway ${peerSubject(overTls) ?? remoteOf(socket)}`;
    accept(socket, peer, permitted(overTls, peer, options));
  });
  const listeners: Listener[] = [];
  const close = async () => void (await Promise.all(listeners.map((each) => each.close())));
  try {
    // Gateways that find the port look for the socket again.
    if (path !== undefined) {
      const http2 = fromTheStart((socket) => accept(socket, 'gateway on this machine', options));
      listeners.push(await listen({ address: { path, deleteExisting: true }, http2, events, name: 'peers' }));
    }
    listeners.push(await listen({ address: { host, port }, tls, role: GATEWAY_NAME, http2, events, name: 'peers' }));
  } catch (error) {
    await close();
    throw error;
  }
  const stop = async () => void (await Promise.all(listeners.map((each) => each.stop())));
  return {
    address: listeners.at(-1)?.address as string,
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
      await close();
    },
  };
}

/** What a gateway may dial and attach. Each request is checked: it names the tenant that it is for. */
function permitted(socket: TLSSocket, peer: string, options: PeerServerOptions): Link {
  const { dial, attach, tenantsOf, events } = options;
  const presented = presentedBy(socket);
  const tenants = presented && tenantsOf?.(presented.leaf);
  if (!tenants) return options;
  const checked =
    <Request extends { readonly tenant: string }, Answer>(next: (request: Request) => Promise<Answer>) =>
    (request: Request) => {
      if (tenants.has(request.tenant)) return next(request);
      const names = [...tenants].join(', ') || 'no tenant';
      const text = `${peer} may not dial for tenant ${printable(request.tenant)}: its certificate is for ${names}`;
      const refusal = new NotAuthorised(text, { rule: `SPIFFE IDs of ${peer}` });
      events.emit('refused', 'peers', remoteOf(socket), refusal);
      return Promise.reject(new DialError('http_request_denied', text, { cause: refusal }));
    };
  return { dial: checked(dial), attach: checked(attach) };
}
