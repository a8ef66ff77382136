import type { HubLink, PlanePart } from '@isthmus/admin';
import type { Directory, HubRecord } from '@isthmus/directory';
import { type Following, follow, type Registry, type Roster } from '@isthmus/directory';
import { randomHex } from '@isthmus/runtime';
import type { PlaneState } from '@isthmus/telemetry';
import { PeerLinks, type PeerLinksOptions } from '@isthmus/transport';
import type { NextHop, PlaneEvents } from '@isthmus/tunnel';
import type { AskingLinks } from './questions.ts';
import type { Hub } from './roles.ts';

export interface PlaneViewOptions {
  readonly registry: Registry;
  /** Kept in step with the registry. */
  readonly directory: Directory;
  readonly events: PlaneEvents;
  /** The hub in this process: dials to it are function calls. */
  readonly own?: Pick<Hub, 'hubId' | 'dial' | 'attach' | 'sessions' | 'membership' | 'record' | 'asker' | 'gateways'>;
  /** How to reach the plane's other hubs. Unset if dials never go there. */
  readonly peers?: Pick<PeerLinksOptions, 'tls' | 'socketOf' | 'member' | 'apiServers'>;
}

/** A server's view of its plane: a copy of the registry and, for a gateway, a link to each hub. */
export class PlaneView {
  /** Names this process to hubs and agents. */
  readonly instance = randomHex(8);
  readonly following: Following;
  readonly #options: PlaneViewOptions;
  readonly #peers: PeerLinks | undefined;
  readonly #stop = new AbortController();

  constructor(options: PlaneViewOptions) {
    const { registry, directory, events, own } = options;
    this.#options = options;
    const peers = options.peers && new PeerLinks({ ...options.peers, events, instance: this.instance });
    this.#peers = peers;
    events.on('peer:open', (hubId) => directory.reachable(hubId));
    events.on('peer:suspect', (hubId, _address, is) => directory.suspect(hubId, is));
    events.on('peer:close', (hubId) => {
      directory.suspect(hubId, false);
      this.following.unlinked(hubId);
    });
    this.following = follow(registry, {
      directory,
      signal: this.#stop.signal,
      linked: (hubId) => peers?.link(hubId) !== undefined,
      hubs(hubs) {
        peers?.sync(hubs.filter(({ hubId }) => hubId !== own?.hubId));
        own?.membership(hubs);
      },
      // The registration of a hub in this process also reports the registry's health.
      state: (up, detail) => own || events.emit('registry', up ? 'up' : 'down', detail),
    });
  }

  /** Returns the way to a hub: its link, or the hub in this process. Undefined while there is none. */
  readonly nextHop = (hubId: string): NextHop | undefined => {
    const { own } = this.#options;
    return hubId === own?.hubId ? own : this.#peers?.link(hubId);
  };

  /** The ways to ask other processes. */
  get asking(): AskingLinks {
    const { own, directory } = this.#options;
    const peers = this.#peers;
    const hubs = () => [...directory.hubs()].map(({ hubId }) => hubId).filter((id) => peers?.ask(id) !== undefined);
    return {
      direct: (to) => ('member' in to ? peers?.ask(to.member) : undefined) ?? own?.asker(to),
      neighbours: () => [...hubs(), ...(own?.gateways ?? [])],
    };
  }

  /** Whether dials can reach some hub: over a link, or in this process if it has the sessions. Without a hub to reach, they can wait. */
  get linked(): boolean {
    const { own, directory } = this.#options;
    if (!this.#peers || this.#peers.ready) return true;
    if (own) return own.sessions.size > 0 || directory.size === 0;
    return this.#countLinks().wanted === 0;
  }

  /** How many links to the plane's other hubs are up, and how many there should be. */
  get links(): string {
    if (!this.#peers) return 'alone';
    const { up, wanted } = this.#countLinks();
    return `links: ${up}, hubs: ${wanted}`;
  }

  /** @param tenant whose callers the gateway serves. Unset: no gateway */
  state(tenant?: string): PlaneState {
    const { directory } = this.#options;
    if (tenant === undefined) return { registry: this.following };
    return {
      registry: this.following,
      gateway: {
        tenant,
        links: () => this.#countLinks(),
        reaches: (hubId) => this.nextHop(hubId) !== undefined,
        watch: (watcher) => directory.watch(watcher),
      },
    };
  }

  /** Counts the other hubs that should have a link, and those that do. Draining hubs do not count: their links take no dials. */
  #countLinks(): { wanted: number; up: number } {
    const count = { wanted: 0, up: 0 };
    if (!this.#peers) return count;
    const { directory, own } = this.#options;
    for (const { hubId, peerAddress, draining } of directory.hubs()) {
      if (peerAddress === '' || draining || hubId === own?.hubId) continue;
      count.wanted++;
      if (this.#peers.link(hubId)) count.up++;
    }
    return count;
  }

  /** The plane as an operator sees it from here. */
  part(roster: Roster): PlanePart {
    return {
      registry: this.following,
      members: () => roster.members(),
      lastMembers: () => roster.last,
      hubs: () => this.#hubs(),
      linkTo: (hub) => this.#linkTo(hub),
      rttTo: (hubId) => this.#peers?.rtt(hubId),
      failureOf: (hubId) => this.#peers?.failure(hubId),
    };
  }

  /** With its own hub, which has left the registry once it has drained, and is there until it ends. */
  #hubs(): readonly HubRecord[] {
    const { directory, own } = this.#options;
    const known = [...directory.hubs()];
    return !own || known.some(({ hubId }) => hubId === own.hubId) ? known : [...known, own.record];
  }

  /** How dials reach a hub. */
  #linkTo({ hubId, peerAddress, draining }: HubRecord): HubLink {
    if (hubId === this.#options.own?.hubId) return 'own';
    if (!this.#peers || peerAddress === '') return 'none';
    if (this.#peers.link(hubId)) return 'up';
    // Dials need no link to a hub that drains.
    return draining ? 'none' : 'down';
  }

  close(): void {
    this.#stop.abort();
    this.#peers?.close();
  }
}
