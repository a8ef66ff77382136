import type { Socket } from 'node:net';
import type { Tenancy } from '@isthmus/plane';
import { RandomSet } from '@isthmus/runtime';
import {
  type CallerIdentity,
  type CallerPeer,
  type Identify,
  serverNameOf,
  shownCertificate,
} from '@isthmus/transport';
import { DialError, NotAuthorised, type PlaneEvents } from '@isthmus/tunnel';

/** What a port or unix socket says about its callers. Empty for one that tenants share. */
export interface Door {
  /** The tenant whose own it is. */
  readonly tenant?: string;
  readonly port?: number;
  /** An absolute path. */
  readonly unixSocket?: string;
}

interface Entrance {
  readonly door: Door;
  readonly admitted: () => void;
}

const UNKNOWN: Entrance = { door: {}, admitted() {} };

/** A connection whose caller is known. */
interface Known {
  readonly door: Door;
  readonly peer: CallerPeer;
  readonly who: CallerIdentity;
}

interface Refused {
  readonly error: NotAuthorised;
  /** How many changes of the tenants came before. */
  readonly asOf: number;
}

/**
 * Says who callers are where tenants are configured. A connection is judged at its first dial. When its credential ends, so do the
 * connection and its tunnels. A tenant has no more connections than tunnels and pending dials, so that idle ones take no other's.
 */
export class Identities {
  readonly identify: Identify = (peer) => this.#identify(peer);
  readonly #tenancy: Tenancy;
  readonly #events: PlaneEvents;
  readonly #doors = new WeakMap<Socket, Entrance>();
  readonly #judged = new WeakMap<Socket, Known | Refused>();
  readonly #known = new RandomSet<Known>();
  /** How many of them each tenant has. */
  readonly #connections = new Map<string, number>();
  #changes = 0;

  constructor(tenancy: Tenancy, events: PlaneEvents) {
    this.#tenancy = tenancy;
    this.#events = events;
    tenancy.changed(() => this.#changes++);
  }

  /** Notes which door accepted a connection. @param admitted called once its caller is known */
  enter(socket: Socket, door: Door, admitted: () => void): void {
    this.#doors.set(socket, { door, admitted });
  }

  /** Ends the connections that a door accepted. */
  endAll(door: Door, reason: NotAuthorised): void {
    for (const known of this.#known) if (known.door === door) this.#end(known, reason);
  }

  /** Who a caller is holds for its connection's life, a refusal only until the tenants change. */
  #identify(peer: CallerPeer): CallerIdentity | NotAuthorised {
    const judged = this.#judged.get(peer.socket);
    if (judged && 'who' in judged) return judged.who;
    if (judged?.asOf === this.#changes) return judged.error;
    try {
      const known = this.#judge(peer);
      this.#judged.set(peer.socket, known);
      return known.who;
    } catch (error) {
      if (!(error instanceof NotAuthorised)) throw error;
      this.#judged.set(peer.socket, { error, asOf: this.#changes });
      return error;
    }
  }

  /** @throws DialError if the tenant has too many connections */
  #judge(peer: CallerPeer): Known {
    const { socket, remote, subject } = peer;
    const { door, admitted } = this.#doors.get(socket) ?? UNKNOWN;
    const [serverName, certificate] = [serverNameOf(socket), shownCertificate(socket)];
    const evidence = { ...door, ...(serverName && { serverName }), ...(certificate && { certificate }) };
    const grant = this.#tenancy.identify.caller(evidence);
    const { principal } = grant;
    const { tenant } = principal;
    this.#checkRoom(tenant);
    const caller = { identity: subject ?? remote, remote, principal };
    const known: Known = { door, peer, who: { tenant, caller } };
    const unwatch = grant.watch((reason) => this.#end(known, reason));
    this.#known.add(known);
    this.#count(tenant, 1);
    admitted();
    socket.once('close', () => {
      unwatch();
      this.#known.delete(known);
      this.#count(tenant, -1);
    });
    return known;
  }

  #checkRoom(tenant: string): void {
    const open = this.#connections.get(tenant) ?? 0;
    const { tunnels, pendingDials } = this.#tenancy.limits(tenant);
    if (open < tunnels + pendingDials) return;
    const text = `tenant ${tenant} has ${open} connections of callers, as many as limits.tunnels and limits.pendingDials allow: close idle ones`;
    throw new DialError('connection_limit_reached', text);
  }

  #count(tenant: string, by: 1 | -1): void {
    const left = (this.#connections.get(tenant) ?? 0) + by;
    if (left > 0) this.#connections.set(tenant, left);
    else this.#connections.delete(tenant);
  }

  #end(known: Known, reason: Error): void {
    if (!this.#known.delete(known)) return;
    const { peer, who } = known;
    const { principal } = who.caller;
    const error = new NotAuthorised(reason.message, { rule: principal?.rule, principal });
    this.#events.emit('refused', 'callers', peer.remote, reason instanceof NotAuthorised ? reason : error);
    peer.end(reason);
  }
}
