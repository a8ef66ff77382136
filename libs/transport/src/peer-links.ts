import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { printable, type TlsSettings, unlessGivenUp } from '@isthmus/runtime';
import { type Ask, HUB_SERVER_NAME, type NextHop, type PlaneEvents, parseDestination } from '@isthmus/tunnel';
import type { ApiServerLinks } from './api-server/links.ts';
import { TRANSPORT } from './defaults.ts';
import { LinkClient, type LinkClientOptions } from './link/client.ts';
import { KeptLink, type LinkFailure } from './link/kept.ts';
import type { LinkServer } from './link/server.ts';
import { LinkRefused, requestLink } from './link/upgrade.ts';
import { connectSecurely } from './tls/renewal.ts';

/** A hub, as the registry has it. */
interface KnownHub {
  readonly hubId: string;
  /** `host:port` where gateways reach the hub; empty for a hub that only the gateway in its own process uses. */
  readonly peerAddress: string;
  /** Names its process. */
  readonly incarnation: number;
  /** Whether it drains: it takes no new links. */
  readonly draining: boolean;
}

/** No file, that of a dead process, or a full queue. */
const NOBODY_THERE: readonly string[] = ['ENOENT', 'ECONNREFUSED', 'EAGAIN'];

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
 * as long as the hub is in the registry and does not drain.
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
    this.#met ||= peers.length > 0 && peers.every(({ kept, hub }) => kept.link ?? kept.failure ?? hub.draining);
    return this.#met && peers.some(({ usable }) => usable);
  }

  /** Call with every change of the registry's hubs. */
  sync(hubs: Iterable<KnownHub>): void {
    const wanted = new Map([...hubs].filter((hub) => hub.peerAddress !== '').map((hub) => [hub.hubId, hub]));
    for (const [hubId, peer] of this.#peers) {
      const hub = wanted.get(hubId);
      if (hub && peer.update(hub)) continue;
      peer.close();
      this.#peers.delete(hubId);
    }
    for (const [hubId, hub] of wanted) {
      if (!this.#peers.has(hubId)) this.#meet(hub);
    }
  }

  #meet(hub: KnownHub): void {
    const peer = new Peer(hub, this.#options, () => {
      peer.close();
      this.#meet(peer.hub);
    });
    this.#peers.set(hub.hubId, peer);
  }

  /** Returns the link to a hub for dials, or undefined if there is none or the hub is leaving. */
  link(hubId: string): NextHop | undefined {
    return this.#peers.get(hubId)?.usable;
  }

  /** Asks a hub, also one that is leaving. Undefined while there is no link to it. */
  ask(hubId: string): Ask | undefined {
    const link = this.#peers.get(hubId)?.kept.link;
    return link && ((question, signal) => link.ask(question, signal));
  }

  /** Why there is no link to a hub; undefined while there is one, and before the first try. */
  failure(hubId: string): LinkFailure | undefined {
    return this.#peers.get(hubId)?.kept.failure;
  }

  /** The round-trip time of the link to a hub, in milliseconds; undefined if it is not known. */
  rtt(hubId: string): number | undefined {
    return this.#peers.get(hubId)?.kept.link?.rtt;
  }

  close(): void {
    for (const peer of this.#peers.values()) peer.close();
    this.#peers.clear();
  }
}

/** A hub in the registry, and the gateway's connections to it: the link, and one on which the hub dials API servers. */
class Peer {
  hub: KnownHub;
  readonly kept: KeptLink<LinkClient>;
  readonly #served: KeptLink<LinkServer> | undefined;
  readonly #options: PeerLinksOptions;
  readonly #outdated: () => void;
  /** The address or path that the link goes to. */
  #at: string;

  /** @param outdated called when the link is silent, and was made before the hub's process in the registry was: another Peer is for that */
  constructor(hub: KnownHub, options: PeerLinksOptions, outdated: () => void) {
    this.hub = hub;
    this.#options = options;
    this.#outdated = outdated;
    this.#at = hub.peerAddress;
    const { apiServers, events, member } = options;
    const { hubId } = hub;
    const mostPauseMs = () => TRANSPORT.hubLinkAgainMostMs;
    const fault = (error: Error) => events.emit('fault', 'peers', `hub ${hubId}`, error);
    this.kept = new KeptLink({
      ...{ mostPauseMs, fault },
      open: (signal) => this.#unlessDraining(signal, () => this.#connect(signal)),
      opened: () => events.emit('peer:open', hubId, this.#at),
      lost: (reason) => this.#lost(reason),
      failed: (error) => this.hub.draining || events.emit('peer:failure', hubId, this.#at, error),
    });
    if (!apiServers || !member) return;
    this.#served = new KeptLink({
      ...{ mostPauseMs, fault },
      open: (signal) => this.#unlessDraining(signal, () => this.#serve(apiServers, member.id, signal)),
      // A hub that is not there fails its usual link, too, which says so.
      failed: (error, again) =>
        again || (error instanceof LinkRefused && events.emit('refused', 'peers', `hub ${hubId}`, error)),
    });
  }

  /** The link, while it takes dials. */
  get usable(): LinkClient | undefined {
    const { link } = this.kept;
    return link?.usable && !link.leaves ? link : undefined;
  }

  /** Goes on with a newer record. False if it is another Peer's: of another address, or the process after one that leaves or is silent. */
  update(hub: KnownHub): boolean {
    const { usable } = this;
    const stays = usable && !usable.silent && !this.hub.draining;
    if (hub.peerAddress !== this.hub.peerAddress) return false;
    if (hub.incarnation !== this.hub.incarnation && !stays) return false;
    this.hub = hub;
    return true;
  }

  /** Lets go of the hub: its tunnels may end, and another Peer may take its id. */
  close(): void {
    this.kept.stop();
    this.#served?.stop();
    this.#served?.link?.close();
    const { link } = this.kept;
    if (!link) return;
    link.close();
    this.#lost(new Error('the link is closing'));
  }

  #lost({ message }: Error): void {
    this.#options.events.emit('peer:close', this.hub.hubId, this.#at, message);
  }

  /** The process of a hub that drains takes no more links, so it is left alone until another Peer has the hub, or nobody. */
  async #unlessDraining<Opened>(signal: AbortSignal, open: () => Promise<Opened>): Promise<Opened> {
    if (this.hub.draining) await once(signal, 'abort');
    signal.throwIfAborted();
    return open();
  }

  async #connect(signal: AbortSignal): Promise<LinkClient> {
    const { events, instance, member } = this.#options;
    const { hubId, peerAddress, incarnation } = this.hub;
    this.#at = peerAddress;
    const { socket, address } = await this.#reach(signal);
    this.#at = address;
    const link = new LinkClient({
      socket,
      peer: `hub ${hubId}`,
      ...(instance !== undefined && { gatewayInstance: instance }),
      member,
      events,
      // Only what was open ends with `peer:close`, which takes the suspicion back.
      suspected: (is) => {
        if (this.kept.link !== link || !link.usable) return;
        events.emit('peer:suspect', hubId, address, is);
        if (is && incarnation !== this.hub.incarnation) this.#outdated();
      },
    });
    // In TLS 1.3, a client learns only after its handshake whether its certificate was accepted.
    const answer = await link.accepted({ timeout: this.#patience, signal });
    // A hub of an earlier version does not say.
    if (!answer || answer === hubId) return link;
    const text = `hub ${printable(answer)} answers where hub ${hubId} should: see that hub's --advertise-address`;
    link.destroy(new Error(text));
    throw new Error(text);
  }

  /** Opens a connection on which the hub dials API servers. */
  async #serve(apiServers: Pick<ApiServerLinks, 'instance' | 'serve'>, id: string, signal: AbortSignal) {
    const { instance } = apiServers;
    const hello = { agentId: id, instance, identifiers: '', version: '', link: 'gateway' } as const;
    const { socket } = await this.#reach(signal);
    try {
      const answer = () => requestLink(socket, HUB_SERVER_NAME, hello, TRANSPORT.peerConnectMs);
      await unlessGivenUp(socket, answer, { signal });
      return apiServers.serve(socket, this.hub.hubId);
    } catch (error) {
      socket.destroy();
      throw error;
    }
  }

  /** How long a step of a connection may take, in milliseconds. */
  get #patience(): number {
    return this.kept.failure ? TRANSPORT.peerReconnectMs : TRANSPORT.peerConnectMs;
  }

  /** Over the hub's unix socket if it has one here, otherwise over TLS. The link stays what it is until it ends. */
  async #reach(signal: AbortSignal): Promise<{ readonly socket: Socket; readonly address: string }> {
    const { peerAddress: address } = this.hub;
    const path = this.#options.socketOf?.(address);
    if (path === undefined) return { socket: await this.#reachOverTls(signal), address };
    const local = await this.#reachLocal(path);
    if (local) return { socket: local, address: path };
    const socket = await this.#reachOverTls(signal);
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
        this.#options.events.emit('refused', 'peers', `hub ${this.hub.hubId}`, new Error(text));
      }
      return undefined;
    }
  }

  #reachOverTls(signal: AbortSignal): Promise<Socket> {
    const { tls } = this.#options;
    // By its role, not its address: anyone who can write to the registry could name any address.
    const names = [HUB_SERVER_NAME];
    const to = parseDestination(this.hub.peerAddress);
    return connectSecurely(to, { tls, names, ALPNProtocols: ['h2'], timeout: this.#patience, signal });
  }
}
