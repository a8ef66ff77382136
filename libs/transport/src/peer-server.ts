import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { type Certificate, presentedBy, printable, remoteOf, type TlsSettings } from '@isthmus/runtime';
import {
  type Ask,
  type Attach,
  type Dial,
  DialError,
  GATEWAY_NAME,
  type GatewayLoss,
  NotAuthorised,
  type PlaneEvents,
} from '@isthmus/tunnel';
import type { ApiServerGateways } from './api-server/gateways.ts';
import { Allowances } from './link/control.ts';
import { LinkServer } from './link/server.ts';
import { DEFAULT_TENANT, LinkRefused, upgradeServer } from './link/upgrade.ts';
import { fromTheStart, type Listener, listen } from './listen.ts';
import { peerSubject } from './tls/admit.ts';

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
  /** Told to gateways, which expect it at this address. Unset: any may be here. */
  readonly hubId?: string;
  readonly dial: Dial;
  readonly attach: Attach;
  /** Answers gateways' questions, for operators whom they know. */
  readonly answer?: Ask | undefined;
  /** The tenants for which a gateway may dial, by its certificate. Undefined: for all. Unset: every gateway may. */
  readonly tenantsOf?: ((gateway: Certificate) => ReadonlySet<string> | undefined) | undefined;
  /** Gets the gateways that connect to API servers for this hub. */
  readonly apiServers?: Pick<ApiServerGateways, 'open'> | undefined;
  readonly events: PlaneEvents;
  /** Called when the last connection to a gateway's process has ended, without a word of it. */
  readonly hungUp?: (loss: GatewayLoss) => void;
}

export interface PeerServer extends Pick<Listener, 'address' | 'close'> {
  /** Accepts no new gateways, and asks the connected ones to dial elsewhere. Their links stay until `close`: a hub that drains can be asked. */
  drain(): void;
  /** Asks a gateway that has a link here, by its id in the plane. Undefined without a link of it. */
  ask(memberId: string): Ask | undefined;
  /** The gateways that can be asked. */
  readonly asked: readonly string[];
}

/** The hub's peer port: accepts gateways' links and serves their dials. */
export async function servePeers(options: PeerServerOptions): Promise<PeerServer> {
  const { host, port, socket: path, tls, hubId, tenantsOf, events } = options;
  if (path !== undefined && tenantsOf)
    throw new Error('a unix socket does not show for which tenants a gateway may dial');
  const links = new Set<LinkServer>();
  const allowances = new Allowances();
  let draining = false;
  const accept = (socket: Socket, peer: string, allowed: Permitted) => {
    const { dial, attach, answer } = allowed;
    const link = new LinkServer({
      socket,
      peer,
      role: 'hub',
      allowance: allowances.of(peer),
      ...(hubId !== undefined && { hubId }),
      dial,
      attach,
      answer,
      restricted: allowed !== options,
      events,
    });
    links.add(link);
    void link.closed.then((reason) => {
      links.delete(link);
      const loss = link.lossFor(reason);
      // It may have another link already.
      if (loss && ![...links].some(({ gatewayInstance }) => gatewayInstance === loss.gateway)) options.hungUp?.(loss);
    });
    // It connected while the hub began to drain.
    if (draining) link.drain();
  };
  const http2 = fromTheStart((socket) => {
    const overTls = socket as TLSSocket;
    const peer = `gateway ${peerSubject(overTls) ?? remoteOf(socket)}`;
    accept(socket, peer, permitted(overTls, peer, options));
  });
  // A gateway that is the serving side asks for it.
  const others = upgradeServer({
    gateways: true,
    admit: async (_hello, socket) => {
      if (!options.apiServers) throw new LinkRefused(404, 'this hub connects to API servers itself');
      const tenants = tenantsFor(socket as TLSSocket, options);
      return { hubId: hubId ?? '', sessionId: '', tenant: DEFAULT_TENANT, plane: '', serverCount: 0, tenants };
    },
    open(socket, { agentId: id, instance = '' }, { tenants }) {
      const peer = `gateway ${peerSubject(socket as TLSSocket) ?? id}`;
      options.apiServers?.open(socket, { id, instance, tenants, allowance: allowances.of(peer) });
    },
    refused: (socket, error) => events.emit('refused', 'peers', remoteOf(socket), error),
    fault: (socket, error) => events.emit('fault', 'peers', remoteOf(socket), error),
  });
  const listeners: Listener[] = [];
  const close = async () => void (await Promise.all(listeners.map((each) => each.close())));
  try {
    // Gateways that find the port look for the socket again.
    if (path !== undefined) {
      const http2 = fromTheStart((socket) => accept(socket, 'gateway on this machine', options));
      listeners.push(await listen({ address: { path, deleteExisting: true }, http2, others, events, name: 'peers' }));
    }
    listeners.push(
      await listen({ address: { host, port }, tls, role: GATEWAY_NAME, http2, others, events, name: 'peers' }),
    );
  } catch (error) {
    await close();
    throw error;
  }
  return {
    address: listeners.at(-1)?.address as string,
    ask(memberId) {
      const link = [...links].find((each) => each.memberId === memberId);
      return link && ((question, signal) => link.ask(question, signal));
    },
    get asked() {
      return [...links].map(({ memberId }) => memberId).filter((id) => id !== '');
    },
    drain() {
      draining = true;
      for (const listener of listeners) void listener.stop();
      for (const link of links) link.drain();
    },
    async close() {
      for (const link of links) link.destroy(new Error('hub stops'));
      await close();
    },
  };
}

/** Returns the tenants that a gateway is for, by its certificate; undefined: all. */
function tenantsFor(socket: TLSSocket, { tenantsOf }: PeerServerOptions): ReadonlySet<string> | undefined {
  const presented = tenantsOf && presentedBy(socket);
  return presented && tenantsOf?.(presented.leaf);
}

type Permitted = Pick<PeerServerOptions, 'dial' | 'attach' | 'answer'>;

/** What a gateway may dial, attach and ask. Each request is checked: it names the tenant that it is for. */
function permitted(socket: TLSSocket, peer: string, options: PeerServerOptions): Permitted {
  const { dial, attach, answer, events } = options;
  const tenants = tenantsFor(socket, options);
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
  const asked =
    (next: Ask): Ask =>
    (question, signal) => {
      const { tenant } = question.operator;
      const { to } = question;
      const own = !('tenant' in to) || to.tenant === tenant;
      if (own && tenant !== undefined && tenants.has(tenant)) return next(question, signal);
      const names = [...tenants].join(', ') || 'no tenant';
      const text = `${peer} may ask only for operators of ${names}`;
      events.emit('refused', 'peers', remoteOf(socket), new NotAuthorised(text, { rule: `SPIFFE IDs of ${peer}` }));
      // Whose they are is not for everybody.
      throw new Error(`${peer} may not ask for this operator`);
    };
  return { dial: checked(dial), attach: checked(attach), answer: answer && asked(answer) };
}
