import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { Backoff, clientTlsOf, connectTo, printable, type TlsSettings, unlessGivenUp } from '@isthmus/runtime';
import { type Ask, HUB_SERVER_NAME, type NextHop, type PlaneEvents } from '@isthmus/tunnel';
import type { ApiServerLinks } from './api-server/links.ts';
import { TRANSPORT } from './defaults.ts';
import { LinkClient, type LinkClientOptions } from './link/client.ts';
import type { LinkServer } from './link/server.ts';
import { LinkRefused, requestLink } from './link/upgrade.ts';
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

  /**
   * Whether the gateway is ready for dials: a link takes them, and each hub of the first list was tried once. A hub that joins later delays
   * nothing.
   */
  get ready(): boolean {
    const peers = [...this.#peers.values()];
    this.#met ||= peers.length > 0 && peers.every(({ tried }) => tried);
    return this.#met && peers.some(({ usable }) => usable);
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

  /** Returns the link to a hub for dials, or undefined if there is none or the hub is leaving. */
  link(hubId: string): NextHop | undefined {
    return this.#peers.get(hubId)?.usable;
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
    const from = performance.now();
    await this.#open(() => this.#backoff.reset());
    // At once, if it was open for long: if it was this process' last connection, others will soon think that the process is dead.
    const ms = performance.now() - from > TRANSPORT.peerReconnectMs ? 0 : this.#backoff.next();
    if (!this.#stopped) this.#timer = setTimeout(() => void this.#run(), ms);
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
  /** Whether the hub drains. It takes no new links, so a lost one is not opened again. */
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

  /** The link, while it takes dials. */
  get usable(): LinkClient | undefined {
    return this.link?.usable && !this.link.leaves ? this.link : undefined;
  }

  update({ draining }: KnownHub): void {
    // Another process has its record: the next link is to be with that one.
    if (this.#draining && !draining) this.link?.close();
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

  /** Returns undefined if nobody listens there: the hub runs on another machine, or serves no socket. The system says so at once. */
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
