import { createHash } from 'node:crypto';
import type { Socket } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import type { Tenancy } from '@isthmus/plane';
import { addressOf, countIn, getOrPut, LruMap, onceClosed, RandomSet, sourceOf, within } from '@isthmus/runtime';
import {
  type CallerIdentity,
  type ConnectionPeer,
  type IdentifyByToken,
  type IdentifyCaller,
  type PortOwner,
  RequestRefused,
  serverNameOf,
  shownCertificate,
} from '@isthmus/transport';
import { DialError, NotAuthorised, type PlaneEvents } from '@isthmus/tunnel';
import { GATEWAY } from './defaults.ts';

type Grant = ReturnType<Tenancy['identify']['caller']>;
/** Who callers are, and how many connections a tenant's may have. */
export type CallersTenancy = Pick<Tenancy, 'identify' | 'changed' | 'limits' | 'tenants' | 'alone'>;
type CallerEvidence = Parameters<Tenancy['identify']['caller']>[0];

/** A connection whose caller is known. */
interface Known {
  readonly owner: PortOwner;
  readonly peer: ConnectionPeer;
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
  /** Who a caller is holds for its connection's life, a refusal only until the tenants change. */
  readonly identifyCaller: IdentifyCaller = (peer) => {
    const judged = this.#judged.get(peer.socket);
    if (judged && 'who' in judged) return judged.digest === undefined ? judged.who : unshown(judged.who);
    if (judged?.asOf === this.#changes) return judged.error;
    try {
      const grant = this.#tenancy.identify.caller(this.#evidence(peer.socket));
      return this.#admit(peer, grant, undefined).who;
    } catch (error) {
      if (error instanceof NotAuthorised) this.#judged.set(peer.socket, { error, asOf: this.#changes });
      else if (!(error instanceof DialError)) throw error;
      return error;
    }
  };
  /** Verified once a connection, unless its next request shows another one. */
  readonly identifyByToken: IdentifyByToken = async (peer, { tenant, token }, signal) => {
    const { socket } = peer;
    // Stands for a credential, and holds nothing with which anybody could connect.
    const digest = createHash('sha256')
      .update(`${tenant ?? ''}:${token}`)
      .digest('base64');
    const before = this.#judged.get(socket);
    if (before && 'who' in before && before.digest === digest) return before.who;
    const evidence = this.#evidence(socket);
    const source = sourceOf(addressOf(socket) ?? '');
    const shownBy = { source, tenant: this.#saidTenant(evidence, tenant), digest, signal };
    const grant = await this.#guesses.judge(shownBy, (waitToVerify) =>
      this.#tenancy.identify.callerToken({
        ...evidence,
        token,
        source,
        signal,
        waitToVerify,
        ...(tenant !== undefined && { claimedTenant: tenant }),
      }),
    );
    signal.throwIfAborted();
    const now = this.#judged.get(socket);
    return now && 'who' in now ? this.#replace(now, grant, digest) : this.#admit(peer, grant, digest).who;
  };
  readonly #tenancy: CallersTenancy;
  readonly #events: PlaneEvents;
  readonly #owners = new WeakMap<Socket, { readonly owner: PortOwner; readonly proven: () => void }>();
  readonly #judged = new WeakMap<Socket, Known | Refused>();
  readonly #known = new RandomSet<Known>();
  /** How many of them each tenant has. */
  readonly #connections = new Map<string, number>();
  readonly #guesses = new Guesses();
  #changes = 0;

  constructor(tenancy: CallersTenancy, events: PlaneEvents) {
    this.#tenancy = tenancy;
    this.#events = events;
    tenancy.changed(() => this.#changes++);
  }

  /** Notes which port accepted a connection. @param proven called once its caller is known */
  enter(socket: Socket, owner: PortOwner, proven: () => void): void {
    this.#owners.set(socket, { owner, proven });
  }

  /** Ends the connections that a port accepted. */
  endAll(owner: PortOwner, reason: NotAuthorised): void {
    for (const known of this.#known) if (known.owner === owner) this.#end(known, reason);
  }

  /** Whose a token is said to be. It is a claim. Names of no tenant are one: nobody has more guesses by inventing them. */
  #saidTenant({ tenant: own, serverName }: CallerEvidence, claimed: string | undefined): string {
    const { tenants } = this.#tenancy;
    if (own !== undefined) return own;
    const said = claimed === undefined ? serverName && tenants.byServerName(serverName) : tenants.get(claimed);
    return said ? said.name : '';
  }

  #evidence(socket: Socket): CallerEvidence {
    const [serverName, certificate] = [serverNameOf(socket), shownCertificate(socket)];
    return {
      ...this.#owners.get(socket)?.owner,
      ...(serverName && { serverName }),
      ...(certificate && { certificate }),
    };
  }

  /** @throws DialError if the tenant has too many connections */
  #admit(peer: ConnectionPeer, grant: Grant, digest: string | undefined): Known {
    const { socket, remote, subject } = peer;
    const { owner, proven } = this.#owners.get(socket) ?? { owner: {}, proven() {} };
    const { principal } = grant;
    const { tenant } = principal;
    this.#checkRoom(tenant);
    const caller = { identity: subject ?? remote, remote, principal };
    const known: Known = { owner, peer, who: { tenant, caller }, digest, unwatch() {} };
    this.#stand(known, grant);
    this.#known.add(known);
    countIn(this.#connections, tenant, 1);
    this.#judged.set(socket, known);
    proven();
    onceClosed(socket, () => {
      known.unwatch();
      this.#known.delete(known);
      countIn(this.#connections, tenant, -1);
    });
    return known;
  }

  /** A connection goes on with another token of the same caller. It then stands on that one. */
  #replace(known: Known, grant: Grant, digest: string): CallerIdentity {
    const [{ tenant, name }, now] = [grant.principal, known.who.caller.principal];
    if (known.digest === undefined || now?.name !== name || now.tenant !== tenant) {
      const why = `this connection is of caller ${now?.name} of tenant ${now?.tenant}, and the token of ${name} of ${tenant}: use another connection`;
      throw new NotAuthorised(why, { principal: grant.principal });
    }
    // It ended while this token was judged.
    if (!this.#known.has(known)) throw new NotAuthorised('this connection has ended', { principal: grant.principal });
    const { unwatch } = known;
    this.#stand(known, grant);
    unwatch();
    known.digest = digest;
    return known.who;
  }

  #stand(known: Known, grant: Grant): void {
    known.unwatch = grant.watch((reason) => this.#end(known, reason));
  }

  #checkRoom(tenant: string): void {
    const open = this.#connections.get(tenant) ?? 0;
    const { tunnels, pendingDials } = this.#tenancy.limits(tenant);
    if (open < tunnels + pendingDials) return;
    // Where there are no tenants' files, no limits are in one.
    const by = this.#tenancy.alone ? 'may be' : 'limits.tunnels and limits.pendingDials allow';
    const whose = this.#tenancy.alone ? 'there are' : `tenant ${tenant} has`;
    const text = `${whose} ${open} connections of callers, as many as ${by}: close idle ones`;
    throw new DialError('connection_limit_reached', text);
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

function unshown({ caller: { principal } }: CallerIdentity): NotAuthorised {
  const text = 'this request shows no token, and its connection was opened with one: send it each time';
  return new NotAuthorised(text, { challenge: true, principal });
}

interface ShownBy {
  readonly source: string;
  /** Whose the token is said to be. */
  readonly tenant: string;
  readonly digest: string;
  /** Aborts when its bearer has gone. */
  readonly signal: AbortSignal;
}

/**
 * Tokens that are verified now, and wrong ones whose answers wait. A wrong one takes a turn of its source for a while, even if its sender does not
 * wait for the answer. Further tokens of the source get turns in random order, so that no flood keeps a good one from its own. A token that was
 * good before needs no turn. A source may be a balancer with many tenants behind it, so one tenant's tokens hold up no other's.
 */
class Guesses {
  readonly #shares = new Map<string, Share>();
  /** Digests of tokens that needed a turn and were good. */
  readonly #good = new LruMap<string, true>(GATEWAY.goodTokens);

  /** @param judge awaits `waitToVerify` before it verifies what costs. The answer to a wrong token waits, or is that too many wait already */
  async judge<T>(
    { source, tenant, digest, signal }: ShownBy,
    judge: (waitToVerify: () => Promise<void>) => Promise<T>,
  ): Promise<T> {
    const both = this.#share(`source ${source} tenant ${tenant}`, GATEWAY.wrongTokensOfSource);
    const from = this.#share(`source ${source}`, GATEWAY.wrongTokens);
    const all = [both, from, this.#share(`tenant ${tenant}`, GATEWAY.wrongTokens)];
    const taken: Share[] = [];
    const leave = () => {
      for (const share of taken.splice(0)) share.leave('judged');
    };
    const waitToVerify = async () => {
      if (this.#good.has(digest)) return;
      for (const share of [both, from]) {
        await share.enter(signal);
        taken.push(share);
      }
    };
    try {
      const judged = await judge(waitToVerify);
      if (taken.length > 0) this.#good.set(digest, true);
      return judged;
    } catch (error) {
      if (!(error instanceof NotAuthorised) || error.undecided) throw error;
      this.#good.delete(digest);
      for (const share of all) share.check(error);
      for (const share of all) share.wrong++;
      leave();
      await setTimeout(GATEWAY.wrongTokenMs, undefined, { ref: false });
      for (const share of all) share.leave('wrong');
      throw error;
    } finally {
      leave();
      for (const share of all) if (--share.users === 0) this.#shares.delete(share.key);
    }
  }

  #share(key: string, most: number): Share {
    const share = getOrPut(this.#shares, key, () => new Share(key, most));
    share.users++;
    return share;
  }
}

/** The guesses of a source and tenant, of a source, or of a tenant. */
class Share {
  readonly key: string;
  users = 0;
  /** Tokens that are verified now. */
  judged = 0;
  /** Wrong ones whose answers wait. */
  wrong = 0;
  readonly #most: number;
  /** Tokens that wait for a turn. */
  readonly #waiting = new RandomSet<{ wake(): void }>();

  constructor(key: string, most: number) {
    this.key = key;
    this.#most = most;
  }

  /** @param wrong why a verified token is refused. @throws RequestRefused if no more wrong answers may wait */
  check(wrong: NotAuthorised): void {
    if (this.wrong >= this.#most) throw refusal(`${this.#most} wrong tokens wait for their answer`, wrong);
  }

  /** Resolves when a token may be verified, which may turn out wrong. Rejects with RequestRefused, or when its bearer has gone. */
  async enter(signal: AbortSignal): Promise<void> {
    const late = performance.now() + GATEWAY.dialMs;
    while (this.#full) {
      const left = late - performance.now();
      if (left <= 0) throw refusal(`${this.#most} other tokens are being verified, or were wrong a moment ago`);
      const { promise, resolve } = Promise.withResolvers<void>();
      const turn = { wake: () => resolve() };
      this.#waiting.add(turn);
      signal.addEventListener('abort', turn.wake, { once: true });
      await within(promise, left);
      signal.removeEventListener('abort', turn.wake);
      this.#waiting.delete(turn);
      if (signal.aborted) {
        this.#wake();
        signal.throwIfAborted();
      }
    }
    this.judged++;
  }

  leave(as: 'judged' | 'wrong'): void {
    this[as]--;
    this.#wake();
  }

  get #full(): boolean {
    return this.judged + this.wrong >= this.#most;
  }

  #wake(): void {
    const turn = this.#full ? undefined : this.#waiting.draw(Math.random, () => true);
    if (!turn) return;
    this.#waiting.delete(turn);
    turn.wake();
  }
}

function refusal(why: string, cause?: NotAuthorised): RequestRefused {
  return new RequestRefused(429, `${why}: try again later, with a good one`, {
    code: 'connection_limit_reached',
    cause,
  });
}
