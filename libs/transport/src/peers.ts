import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import {
  Backoff,
  type Certificate,
  clientTlsOf,
  connectTo,
  presentedBy,
  printable,
  remoteOf,
  type TlsSettings,
  unlessGivenUp,
} from '@isthmus/runtime';
import {
  type Ask,
  type Attach,
  type Dial,
  DialError,
  GATEWAY_NAME,
  type GatewayLoss,
  HUB_SERVER_NAME,
  type NextHop,
  NotAuthorised,
  type PlaneEvents,
} from '@isthmus/tunnel';
import type { ApiServerGateways } from './api-server/gateways.ts';
import type { ApiServerLinks } from './api-server/links.ts';
import { TRANSPORT } from './defaults.ts';
import { LinkClient, type LinkClientOptions } from './link/client.ts';
import { Allowances } from './link/control.ts';
import { LinkServer } from './link/server.ts';
import { DEFAULT_TENANT, LinkRefused, requestLink, upgradeServer } from './link/upgrade.ts';
import { fromTheStart, type Listener, listen } from './listen.ts';
import { peerSubject } from './tls/certificate.ts';
import { secureConnect } from './tls/renewal.ts';

/** A hub, as the registry has it. */
interface KnownHub {
  readonly hubId: string;
  /** `host:port` where gateways reach the hub; empty for a hub that only the gateway in its own process uses. */
  readonly peerAddress: string;
  readonly draining: boolean;
}

/** No file, that of a dead process, or a full queue. */
const NOBODY_THERE: readonly string[] = ['ENOENT', 'ECONNREFUSED', 'EAGAIN'];

/** How the last try of a link failed, or how the last link ended. */
interface LinkFailure {
  readonly error: Error;
  /** Milliseconds since the epoch. */
  readonly at: number;
}

export interface PeerLinksOptions {
  readonly tls: TlsSettings;
  /** The socket of a hub with this address, if it runs on this machine: see `PeerServerOptions.socket`. Unset: links are TLS. */
  readonly socketOf?: ((peerAddress: string) => string) | undefined;
  readonly events: PlaneEvents;
  /** Names this process to hubs. */
  readonly instance?: string;
  /** Its id in the plane, and its answers to hubs' questions. */
  readonly member?: LinkClientOptions['member'];
  /** Connects to API servers for hubs, on a connection of their own. Unset: hubs do so themselves. */
  readonly apiServers?: Pick<ApiServerLinks, 'instance' | 'serve'> | undefined;
}

/**
 * A gateway's links to hubs: one to each hub in the registry, opened before the first dial needs it, and reopened when it is lost for
 * as long as the hub is in the registry.
 */
export class PeerLinks {
  readonly #options: PeerLinksOptions;
  readonly #peers = new Map<string, Peer>();
  #met = false;

  constructor(options: PeerLinksOptions) {
    this.#options = options;
  }

  /** The links that are up. */
  get up(): number {
    let count = 0;
    for (const peer of this.#peers.values()) if (peer.link) count++;
    return count;
  }

  /**
   * Whether the gateway is ready for dials: a link is up, and each hub of the first list was tried once. A hub that joins later delays
   * nothing.
   */
  get ready(): boolean {
    this.#met ||= this.#peers.size > 0 && [...this.#peers.values()].every(({ tried }) => tried);
    return this.#met && this.up > 0;
  }

  /** Call with every change of the registry's hubs. */
  sync(hubs: Iterable<KnownHub>): void {
    const wanted = new Map([...hubs].filter((hub) => hub.peerAddress !== '').map((hub) => [hub.hubId, hub]));
    for (const [hubId, peer] of this.#peers) {
      const hub = wanted.get(hubId);
      if (hub && hub.peerAddress === peer.address) {
        peer.update(hub);
        continue;
      }
      peer.close();
      this.#peers.delete(hubId);
    }
    for (const [hubId, hub] of wanted) {
      if (!this.#peers.has(hubId)) this.#peers.set(hubId, new Peer(hubId, hub.peerAddress, this.#options));
    }
  }

  /** Returns the link to a hub, or undefined if there is none or the hub is leaving. */
  link(hubId: string): NextHop | undefined {
    const link = this.#peers.get(hubId)?.link;
    return link?.usable ? link : undefined;
  }

  /** Asks a hub, also one that is leaving. Undefined while there is no link to it. */
  ask(hubId: string): Ask | undefined {
    const link = this.#peers.get(hubId)?.link;
    return link && ((question, signal) => link.ask(question, signal));
  }

  /** Why there is no link to a hub; undefined while there is one, and before the first try. */
  failure(hubId: string): LinkFailure | undefined {
    return this.#peers.get(hubId)?.failure;
  }

  /** The round-trip time of the link to a hub, in milliseconds; undefined if it is not known. */
  rtt(hubId: string): number | undefined {
    return this.#peers.get(hubId)?.link?.rtt;
  }

  close(): void {
    for (const peer of this.#peers.values()) peer.close();
    this.#peers.clear();
  }
}

/** A connection that is opened again whenever it has ended, later after each failure in a row. */
class Reopened {
  readonly #open: (opened: () => void) => Promise<void>;
  readonly #backoff = new Backoff(TRANSPORT.peerRetryFirstMs, TRANSPORT.peerRetryMostMs);
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  /** @param open resolves when it has ended, or could not be opened. It never rejects, and calls `opened` once the connection is there */
  constructor(open: (opened: () => void) => Promise<void>) {
    this.#open = open;
    void this.#run();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  async #run(): Promise<void> {
    await this.#open(() => this.#backoff.reset());
    if (!this.#stopped) this.#timer = setTimeout(() => void this.#run(), this.#backoff.next());
  }
}

/** A hub in the registry, and the gateway's connections to it: the link, and one on which the hub dials API servers. */
class Peer {
  readonly hubId: string;
  readonly address: string;
  link: LinkClient | undefined;
  /** The address or path that the link goes to. */
  #linkedAt = '';
  failure: LinkFailure | undefined;
  /** Whether the first attempt to connect is over. */
  tried = false;
  readonly #options: PeerLinksOptions;
  #kept: Reopened | undefined;
  readonly #served: Reopened | undefined;
  #servedLink: LinkServer | undefined;
  /** Why it was not opened, the last time. */
  #servedFailure = '';
  /** Whether the hub drains. After it ends the link, another one would be useless. */
  #draining = false;
  /** Ends an attempt that is under way. */
  readonly #stop = new AbortController();

  constructor(hubId: string, address: string, options: PeerLinksOptions) {
    this.hubId = hubId;
    this.address = address;
    this.#options = options;
    this.#kept = new Reopened((opened) => this.#connect(opened));
    const { apiServers, member } = options;
    if (apiServers && member) this.#served = new Reopened((opened) => this.#serve(apiServers, member.id, opened));
  }

  update({ draining }: KnownHub): void {
    this.#draining = draining;
    if (!draining) this.#kept ??= new Reopened((opened) => this.#connect(opened));
  }

  /** Lets go of the hub: its tunnels may end, and another Peer may take its id. */
  close(): void {
    this.#stop.abort();
    this.#kept?.stop();
    this.#served?.stop();
    this.#servedLink?.close();
    const { link } = this;
    if (!link) return;
    this.#lost(new Error('the link is closing'));
    link.close();
  }

  async #connect(opened: () => void): Promise<void> {
    const { events, instance, member } = this.#options;
    const { hubId } = this;
    let { address } = this;
    try {
      const reached = await this.#reach();
      const { socket } = reached;
      address = reached.address;
      const link = new LinkClient({
        socket,
        peer: `hub ${hubId}`,
        ...(instance !== undefined && { gatewayInstance: instance }),
        member,
        events,
        // Only what was open ends with `peer:close`, which takes the suspicion back.
        suspected: (is) => void (this.link === link && events.emit('peer:suspect', hubId, address, is)),
      });
      await this.#accepted(link);
      if (this.#stop.signal.aborted) return link.destroy(new Error('gateway stops'));
      this.link = link;
      this.#linkedAt = address;
      this.failure = undefined;
      this.tried = true;
      opened();
      events.emit('peer:open', hubId, address);
      const reason = await link.closed;
      if (this.link === link) this.#lost(reason);
    } catch (thrown) {
      if (this.#stop.signal.aborted) return;
      const error = thrown as Error;
      this.failure = { error, at: Date.now() };
      this.tried = true;
      events.emit('peer:failure', hubId, address, error);
    }
    if (!this.#draining) return;
    this.#kept?.stop();
    this.#kept = undefined;
  }

  #lost(error: Error): void {
    this.link = undefined;
    this.failure = { error, at: Date.now() };
    this.#options.events.emit('peer:close', this.hubId, this.#linkedAt, error.message);
  }

  /** In TLS 1.3, a client learns only after its handshake whether its certificate was accepted. */
  async #accepted(link: LinkClient): Promise<void> {
    const timeout = this.#patience;
    const late = `it has not accepted the link within ${timeout} ms`;
    const answered = () => Promise.race([link.answered, link.closed]);
    const answer = await unlessGivenUp(link, answered, { timeout, late, ...this.#unlessStopped });
    if (answer instanceof Error) throw answer;
    // A hub of an earlier version does not say.
    if (!answer || answer === this.hubId) return;
    const text = `hub ${printable(answer)} answers where hub ${this.hubId} should: see that hub's --advertise-address`;
    link.destroy(new Error(text));
    throw new Error(text);
  }

  /** Opens a connection on which the hub dials API servers. */
  async #serve(apiServers: Pick<ApiServerLinks, 'instance' | 'serve'>, id: string, opened: () => void): Promise<void> {
    const { instance } = apiServers;
    const hello = { agentId: id, instance, identifiers: '', version: '', link: 'gateway' } as const;
    let socket: Socket | undefined;
    try {
      ({ socket } = await this.#reach());
      await requestLink(socket, HUB_SERVER_NAME, hello, TRANSPORT.peerConnectMs);
      this.#stop.signal.throwIfAborted();
      this.#servedLink = apiServers.serve(socket, this.hubId);
      opened();
      this.#servedFailure = '';
      await this.#servedLink.closed;
    } catch (thrown) {
      socket?.destroy();
      const error = thrown as Error;
      // A hub that is not there fails its usual link, too, which says so.
      if (error instanceof LinkRefused && error.message !== this.#servedFailure)
        this.#options.events.emit('refused', 'peers', `hub ${this.hubId}`, error);
      this.#servedFailure = error.message;
    }
    this.#servedLink = undefined;
  }

  /** How long a step of a connection may take, in milliseconds. */
  get #patience(): number {
    return this.failure ? TRANSPORT.peerReconnectMs : TRANSPORT.peerConnectMs;
  }

  get #unlessStopped() {
    return { signal: this.#stop.signal, abandoned: 'gateway stops' };
  }

  /** Over the hub's unix socket if it has one here, otherwise over TLS. The link stays what it is until it ends. */
  async #reach(): Promise<{ readonly socket: Socket; readonly address: string }> {
    const { address } = this;
    const path = this.#options.socketOf?.(address);
    if (path === undefined) return { socket: await this.#reachOverTls(), address };
    const local = await this.#reachLocal(path);
    if (local) return { socket: local, address: path };
    const socket = await this.#reachOverTls();
    // A hub that has just started opened its socket before the port that answered.
    const late = await this.#reachLocal(path);
    if (!late) return { socket, address };
    socket.destroy();
    return { socket: late, address: path };
  }

  /** Returns undefined if nobody listens there: the hub runs on another machine, or serves no socket. */
  async #reachLocal(path: string): Promise<Socket | undefined> {
    const socket = net.connect({ path, allowHalfOpen: true });
    try {
      await once(socket, 'connect');
      return socket;
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      if (!NOBODY_THERE.includes(code ?? '')) {
        const text = `its unix socket cannot be used, so the link is TLS: ${message}`;
        this.#options.events.emit('refused', 'peers', `hub ${this.hubId}`, new Error(text));
      }
      return undefined;
    }
  }

  async #reachOverTls(): Promise<Socket> {
    const { hostname, port } = new URL(`tcp://${this.address}`);
    const host = hostname.replace(/^\[|\]$/g, '');
    // First: it may throw, and would leave a socket behind.
    const trust = clientTlsOf(this.#options.tls);
    const timeout = this.#patience;
    const late = performance.now() + timeout;
    const below = await connectTo({ host, port: Number(port) }, { timeout, signal: this.#stop.signal });
    // By its role, not its address: anyone who can write to the registry could name any address.
    const { socket, done } = secureConnect({ socket: below, servername: host, ALPNProtocols: ['h2'] }, trust, [
      HUB_SERVER_NAME,
    ]);
    await unlessGivenUp(socket, () => done, {
      timeout: late - performance.now(),
      late: `no TLS handshake within ${timeout} ms`,
      ...this.#unlessStopped,
    });
    return socket;
  }
}

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

export interface PeerServer extends Pick<Listener, 'address' | 'connections' | 'close'> {
  /** Accepts no new gateways, asks the connected ones to dial elsewhere, and lets running tunnels finish. */
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
    if (draining) link.close();
  };
  const http2 = fromTheStart((socket) => {
    const overTls = socket as TLSSocket;
    const peer = `gateway ${peerSubject(overTls) ?? remoteOf(socket)}`;
    accept(socket, peer, permitted(overTls, peer, options));
  });
  // A gateway that is the serving side asks for it.
  const upgrades = upgradeServer({
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
  const others = fromTheStart((socket) => upgrades.accept(socket));
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
    get connections() {
      return listeners.flatMap(({ connections }) => [...connections]);
    },
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
      for (const link of links) link.close();
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
