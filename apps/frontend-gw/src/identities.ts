import { createHash } from 'node:crypto';
import type { Socket } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import type { Tenancy } from '@isthmus/plane';
import { addressOf, RandomSet, sourceOf } from '@isthmus/runtime';
import {
  type CallerIdentity,
  type CallerPeer,
  type Identify,
  type IdentifyByToken,
  type PortOwner,
  RequestRefused,
  serverNameOf,
  shownCertificate,
} from '@isthmus/transport';
import { DialError, NotAuthorised, type PlaneEvents } from '@isthmus/tunnel';
import { GATEWAY } from './defaults.ts';

type Grant = ReturnType<Tenancy['identify']['caller']>;

/** A connection whose caller is known. */
interface Known {
  readonly owner: PortOwner;
  readonly peer: CallerPeer;
  readonly who: CallerIdentity;
  /** Of what its last request showed. Unset: the connection itself proves the caller, by certificate or by its way in. */
  digest: string | undefined;
  /** Stops watching the credential that it stands on. */
  unwatch: () => void;
}

interface Refused {
  readonly error: NotAuthorised;
  /** How many changes of the tenants came before. */
  readonly asOf: number;
}

/**
 * Says who callers are where tenants are configured. A connection is judged at its first dial; by a token, again whenever another one is
 * shown. When its credential ends, so do the connection and its tunnels. A tenant has no more connections than tunnels and pending
 * dials, so that idle ones take no other's.
 */
export class Identities {
  readonly identify: Identify = (peer) => this.#identify(peer);
  readonly identifyByToken: IdentifyByToken = (...asked) => this.#identifyByToken(...asked);
  readonly #tenancy: Pick<Tenancy, 'identify' | 'changed' | 'limits'>;
  readonly #events: PlaneEvents;
  readonly #owners = new WeakMap<Socket, { readonly owner: PortOwner; readonly admitted: () => void }>();
  readonly #judged = new WeakMap<Socket, Known | Refused>();
  readonly #known = new RandomSet<Known>();
  /** How many of them each tenant has. */
  readonly #connections = new Map<string, number>();
  readonly #guesses = new Guesses();
  #changes = 0;

  constructor(tenancy: Pick<Tenancy, 'identify' | 'changed' | 'limits'>, events: PlaneEvents) {
    this.#tenancy = tenancy;
    this.#events = events;
    tenancy.changed(() => this.#changes++);
  }

  /** Notes which port accepted a connection. @param admitted called once its caller is known */
  enter(socket: Socket, owner: PortOwner, admitted: () => void): void {
    this.#owners.set(socket, { owner, admitted });
  }

  /** Ends the connections that a port accepted. */
  endAll(owner: PortOwner, reason: NotAuthorised): void {
    for (const known of this.#known) if (known.owner === owner) this.#end(known, reason);
  }

  /** Who a caller is holds for its connection's life, a refusal only until the tenants change. */
  #identify(peer: CallerPeer): CallerIdentity | NotAuthorised {
    const judged = this.#judged.get(peer.socket);
    if (judged && 'who' in judged) return judged.digest === undefined ? judged.who : UNSHOWN;
    if (judged?.asOf === this.#changes) return judged.error;
    try {
      const grant = this.#tenancy.identify.caller(this.#evidence(peer.socket));
      return this.#admit(peer, grant, undefined).who;
    } catch (error) {
      if (!(error instanceof NotAuthorised)) throw error;
      this.#judged.set(peer.socket, { error, asOf: this.#changes });
      return error;
    }
  }

  /** Verified once a connection, unless its next request shows another one. */
  async #identifyByToken(...[peer, { tenant, token }, signal]: Parameters<IdentifyByToken>): Promise<CallerIdentity> {
    const { socket } = peer;
    const digest = digestOf(tenant, token);
    const before = this.#judged.get(socket);
    if (before && 'who' in before && before.digest === digest) return before.who;
    const evidence = this.#evidence(socket);
    const source = sourceOf(addressOf(socket) ?? '');
    // Whose token it is said to be. It is a claim: the tenant's name, or the name that the connection was opened with.
    const of = evidence.tenant ?? tenant ?? evidence.serverName ?? '';
    const refusal = this.#guesses.refusalOf(source, of);
    const grant = await this.#tenancy.identify
      .callerToken({
        ...evidence,
        token,
        source,
        signal,
        refusal,
        ...(tenant !== undefined && { claimedTenant: tenant }),
      })
      .catch(async (error: unknown) => {
        if (error instanceof NotAuthorised && !error.undecided) await this.#guesses.wrong(source, of);
        throw error;
      });
    signal.throwIfAborted();
    const now = this.#judged.get(socket);
    return now && 'who' in now ? this.#replace(now, grant, digest) : this.#admit(peer, grant, digest).who;
  }

  #evidence(socket: Socket) {
    const [serverName, certificate] = [serverNameOf(socket), shownCertificate(socket)];
    return {
      ...this.#owners.get(socket)?.owner,
      ...(serverName && { serverName }),
      ...(certificate && { certificate }),
    };
  }

  /** @throws DialError if the tenant has too many connections */
  #admit(peer: CallerPeer, grant: Grant, digest: string | undefined): Known {
    const { socket, remote, subject } = peer;
    const { owner, admitted } = this.#owners.get(socket) ?? { owner: {}, admitted() {} };
    const { principal } = grant;
    const { tenant } = principal;
    this.#checkRoom(tenant);
    const caller = { identity: subject ?? remote, remote, principal };
    const known: Known = { owner, peer, who: { tenant, caller }, digest, unwatch() {} };
    this.#stand(known, grant);
    this.#known.add(known);
    this.#count(tenant, 1);
    this.#judged.set(socket, known);
    admitted();
    socket.once('close', () => {
      known.unwatch();
      this.#known.delete(known);
      this.#count(tenant, -1);
    });
    return known;
  }

  /** A connection of HTTP/2 goes on with another token of the same caller. It then stands on that one. */
  #replace(known: Known, grant: Grant, digest: string): CallerIdentity {
    const [{ tenant, name }, now] = [grant.principal, known.who.caller.principal];
    if (known.digest === undefined || now?.name !== name || now.tenant !== tenant) {
      const why = `this connection is of caller ${now?.name} of tenant ${now?.tenant}, and the token of ${name} of ${tenant}: use another connection`;
      throw new NotAuthorised(why, { principal: grant.principal });
    }
    known.unwatch();
    known.digest = digest;
    this.#stand(known, grant);
    return known.who;
  }

  #stand(known: Known, grant: Grant): void {
    known.unwatch = grant.watch((reason) => this.#end(known, reason));
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

const UNSHOWN = new NotAuthorised(
  'this request shows no token, and its connection was opened with one: send it each time',
  {
    challenge: true,
  },
);

/** Stands for a credential, and holds nothing with which anybody could connect. */
function digestOf(tenant = '', token: string): string {
  return createHash('sha256').update(`${tenant}:${token}`).digest('base64');
}

/**
 * Wrong tokens whose answers wait. Each costs its sender a while, and also one that does not wait for the answer. A source may be a balancer
 * with many tenants behind it, so one tenant's wrong tokens hold up no other's good ones.
 */
class Guesses {
  readonly #waiting = new Map<string, number>();

  /** Why nothing that costs may be verified now for a source and the tenant that it names; undefined if it may. */
  refusalOf(source: string, tenant: string): RequestRefused | undefined {
    const [both, from] = keysOf(source, tenant);
    return this.#fault(both, GATEWAY.wrongTokensOfSource) ?? this.#fault(from, GATEWAY.wrongTokens);
  }

  /** Resolves when the answer may go. @throws RequestRefused to answer at once, because too many answers wait already */
  async wrong(source: string, tenant: string): Promise<void> {
    const keys = keysOf(source, tenant);
    const fault = this.refusalOf(source, tenant) ?? this.#fault(keys[2], GATEWAY.wrongTokens);
    if (fault) throw fault;
    for (const key of keys) this.#waiting.set(key, (this.#waiting.get(key) ?? 0) + 1);
    await setTimeout(GATEWAY.wrongTokenMs, undefined, { ref: false });
    for (const key of keys) {
      const left = (this.#waiting.get(key) ?? 0) - 1;
      if (left > 0) this.#waiting.set(key, left);
      else this.#waiting.delete(key);
    }
  }

  #fault(key: string, most: number): RequestRefused | undefined {
    if ((this.#waiting.get(key) ?? 0) < most) return undefined;
    const text = `${most} wrong tokens wait for their answer: try again later, with a good one`;
    return new RequestRefused(429, text, { code: 'connection_limit_reached' });
  }
}

function keysOf(source: string, tenant: string): readonly [both: string, source: string, tenant: string] {
  return [`source ${source} tenant ${tenant}`, `source ${source}`, `tenant ${tenant}`];
}
