import { type Clock, guarding } from '@isthmus/runtime';
import type { HubMember } from '@isthmus/transport';
import type { PlaneEvents } from '@isthmus/tunnel';
import { Addresses, placeOf, type Target } from './addresses.ts';
import { type Assessment, assess, isInPlane } from './coverage.ts';
import { type Informant, Membership } from './membership.ts';
import { Moves } from './moves.ts';
import type { OriginOptions } from './origin.ts';
import { type Attempt, Pace, YOUNG_ATTEMPT_MS } from './pace.ts';
import type { ServerAddress, Uplink, UplinkOptions } from './uplink.ts';

export interface ReconcilerOptions {
  readonly agentId: string;
  readonly zone: string;
  readonly sessionCount: number | 'all';
  /** How many servers without a plane there are. */
  readonly serverCount: (uplinks: readonly Uplink[]) => number;
  /** The configured servers, on one port. */
  readonly server: { readonly hosts: readonly string[]; readonly port: number };
  readonly resolve?: OriginOptions['resolve'];
  readonly syncInterval: number;
  readonly syncIntervalCap: number;
  readonly syncForever: boolean;
  /** How long all agents together take to move their sessions to better hubs, in milliseconds. */
  readonly rebalanceTime: number;
  readonly connect: (
    server: ServerAddress,
    attempt: Pick<UplinkOptions, 'membership' | 'leave' | 'timeout' | 'signal'>,
  ) => Promise<Uplink>;
  /** Called when a connection to this server has ended. */
  readonly closed: (server: ServerAddress) => void;
  readonly events: PlaneEvents;
  readonly clock: Clock;
}

/** How often to check what no event reports, such as the end of the last tunnel of a session that should move, in milliseconds. */
const LOOK_EVERY = 1000;

/**
 * Keeps an agent connected to the right number of servers, and to the right ones. It answers one question whenever something happened:
 * what is missing or misplaced now, and when is the next check worthwhile?
 */
export class Reconciler {
  readonly #options: ReconcilerOptions;
  readonly #uplinks = new Set<Uplink>();
  readonly #membership: Membership;
  readonly #addresses: Addresses;
  readonly #moves: Moves;
  readonly #pace: Pace;
  readonly #stopping = new AbortController();
  /** Whether it once had as many sessions as it wanted. */
  #complete = false;
  #cancel = () => {};
  /** After a defect, check again, because nothing else may trigger it. */
  readonly #guarded = guarding((error) => {
    this.#lookIn(this.#options.syncIntervalCap);
    this.#options.events.emit('fault', 'upkeep', '', error);
  });

  constructor(options: ReconcilerOptions) {
    const { server, syncInterval: first, syncIntervalCap: cap, rebalanceTime, resolve, clock } = options;
    this.#options = options;
    this.#membership = new Membership(clock.now);
    this.#addresses = new Addresses({ ...server, first, cap, clock, ...(resolve && { resolve }) });
    this.#moves = new Moves(rebalanceTime, clock);
    this.#pace = new Pace(clock);
    this.reconcile();
  }

  /** Includes those that are leaving. */
  get uplinks(): readonly Uplink[] {
    return [...this.#uplinks];
  }

  /** How many servers it wants to be connected to. */
  get wanted(): number {
    return this.#assess().wanted;
  }

  /** Starts no more connections and abandons pending ones. Established ones stay. */
  stop(): void {
    this.#stopping.abort();
    this.#cancel();
  }

  get #stopped(): boolean {
    return this.#stopping.signal.aborted;
  }

  reconcile(): void {
    if (this.#stopped) return;
    const { syncIntervalCap, events } = this.#options;
    const assessment = this.#assess();
    events.emit('server:known', assessment.wanted);
    this.#retire(assessment);
    this.#lookIn(Math.min(syncIntervalCap, this.#fill(assessment), this.#move(assessment)));
  }

  /** @param wait in milliseconds */
  #lookIn(wait: number): void {
    this.#cancel();
    if (this.#stopped) return;
    const look = this.#guarded(() => this.reconcile());
    this.#cancel = this.#options.clock.after(Math.max(1, wait), look);
  }

  #assess(): Assessment<Uplink> {
    const { agentId, zone, sessionCount, serverCount } = this.#options;
    const uplinks = this.#staying;
    const { hubs, candidates: known } = this.#membership;
    return assess({ agentId, zone, sessionCount, hubs, known, uplinks, serverCount: serverCount(uplinks) });
  }

  get #staying(): Uplink[] {
    return this.uplinks.filter(({ leaving }) => !leaving);
  }

  /** Leaves hubs that better ones have replaced, once gateways can know of those. */
  #retire({ wanted, displaced }: Assessment<Uplink>): void {
    if (!this.#membership.current) return;
    const surplus = Math.max(0, this.#staying.length - wanted);
    for (const uplink of displaced.slice(0, surplus)) uplink.retire();
  }

  /** Starts connecting if a session is missing. Returns when to check again, in milliseconds. */
  #fill({ wanted, candidates }: Assessment): number {
    const staying = this.#staying;
    const missing = wanted - staying.length;
    // Within a plane, an agent hears of every hub.
    const seeks = missing <= 0 && this.#options.syncForever && !isInPlane(staying);
    this.#complete ||= staying.length > 0 && missing <= 0;
    if (missing <= 0 && !seeks) {
      this.#pace.anew();
      return Number.POSITIVE_INFINITY;
    }
    const connected = staying.length > 0;
    // Each server without a plane serves its own callers, who wait for an agent that starts.
    const starts = !this.#complete && !isInPlane(staying);
    const wait = this.#pace.wait(missing, connected, starts || !connected);
    if (wait > 0) return wait;
    const known = seeks ? [] : candidates;
    const targets = this.#addresses.rank(known, connected, this.#pace.engaged, this.#asksOrigin);
    const next = targets.find(({ wait }) => wait <= 0);
    if (!next) return Math.min(...targets.map(({ wait }) => wait));
    this.#guarded(() => this.#attempt(next))();
    return YOUNG_ATTEMPT_MS;
  }

  /** Whether the configured servers come before hubs of an old report, which may be many and all gone. */
  get #asksOrigin(): boolean {
    return this.#membership.stale && this.#pace.pending.every(({ server }) => server);
  }

  /** Starts connecting to a better hub whose time has come. Returns when to check again, in milliseconds. */
  #move({ wanted, better, displaced }: Assessment): number {
    const staying = this.#staying.length;
    const apt = staying >= wanted && displaced.length > 0;
    // Times that were drawn while nothing may move would all have passed when something may.
    this.#moves.plan(apt && !this.#membership.away ? better : []);
    if (!apt || !this.#membership.current) return Number.POSITIVE_INFINITY;
    const busy = displaced.every(({ open }) => open > 0);
    const [hubId] = this.#moves.due(busy);
    const hub = better.find((one) => one.hubId === hubId);
    if (!hub) return busy ? LOOK_EVERY : this.#moves.wait(busy);
    // One after the other: the last one is done when what it displaced is leaving.
    if (this.#pace.pending.length > 0 || staying > wanted) return LOOK_EVERY;
    const target = { ...this.#addresses.targetOf(hub), only: hub.hubId };
    const wait = this.#addresses.wait(target);
    if (wait > 0) return wait;
    this.#guarded(() => this.#attempt(target))();
    return YOUNG_ATTEMPT_MS;
  }

  async #attempt(target: Target): Promise<void> {
    const { connect, clock } = this.#options;
    const attempt = this.#pace.begin(target, this.#staying.length > 0);
    const { only } = target;
    const informant = this.#membership.informant();
    let place = this.#addresses.nameOf(target);
    let since = Number.POSITIVE_INFINITY;
    let warned = false;
    const leave = () => {
      if (warned) return;
      warned = true;
      this.#warned(place, Math.max(0, clock.now() - since));
    };
    try {
      const server = await this.#addresses.resolve(target, attempt.calm);
      place = placeOf(server);
      const uplink = await connect(server, {
        membership: (message) => this.#news(informant.hear(message)),
        leave,
        timeout: attempt.timeout,
        signal: this.#stopping.signal,
      });
      since = clock.now();
      if (!this.#adopt(uplink, only, informant)) this.#missed(attempt);
    } catch (error) {
      if (!this.#stopped) this.#failed(place, attempt, error as Error);
    }
    this.#pace.end(attempt);
    this.reconcile();
  }

  /** Keeps a connection unless its server is connected already. Then the older one stays, as servers expect it. */
  #adopt(uplink: Uplink, only: string | undefined, informant: Informant): boolean {
    const { serverId, protocol, plane, server } = uplink;
    const { events, clock } = this.#options;
    const refusal = this.#refusal(uplink, only);
    if (refusal !== undefined) {
      informant.end();
      uplink.destroy(new Error(refusal));
      return false;
    }
    const since = clock.now();
    const address = placeOf(server);
    this.#uplinks.add(uplink);
    if (plane !== '') informant.begin();
    this.#pace.afresh();
    this.#addresses.reached();
    events.emit('server:open', { address, serverId, protocol });
    const closed = (reason: Error | undefined) => {
      informant.end();
      this.#uplinks.delete(uplink);
      if (!uplink.leaving) this.#lose(address, clock.now() - since);
      if (reason && !uplink.leaving && !this.#stopped) events.emit('server:failure', address, 'connected', reason);
      events.emit('server:close', { address, serverId }, reason?.message ?? 'closed');
      this.#options.closed(server);
      this.reconcile();
    };
    void uplink.closed.then(this.#guarded(closed));
    return true;
  }

  #refusal({ serverId }: Uplink, only: string | undefined): string | undefined {
    if (this.#stopped) return 'agent stops';
    // A server that leaves may return under its id while its last tunnels still run.
    if (this.#staying.some((other) => other.serverId === serverId)) return 'server is connected already';
    if (only !== undefined && serverId !== only) return `hub ${only} was wanted`;
    return undefined;
  }

  #missed(target: Target): void {
    if (target.only !== undefined) this.#moves.failed(target.only);
    // Within a plane, an agent hears of every new hub.
    else this.#addresses.missed(target, isInPlane(this.#staying));
  }

  #failed(place: string, attempt: Attempt, error: NodeJS.ErrnoException): void {
    const { only } = attempt;
    if (this.#staying.length > 0) this.#addresses.failed(place);
    else this.#addresses.failedUrgently(place, { before: this.#pace.failures, refused: error.code === 'ECONNREFUSED' });
    if (only !== undefined) this.#moves.failed(only);
    else this.#pace.failed(attempt);
    this.#options.events.emit('server:failure', place, 'connecting', error);
  }

  #lose(place: string, lived: number): void {
    if (this.#addresses.lost(place, lived, this.#staying.length > 0)) this.#pace.afresh();
  }

  /** Call when a server is leaving. */
  #warned(place: string, lived: number): void {
    this.#addresses.warned(place, lived);
    this.reconcile();
  }

  /** Takes a hub's report. A hub that started is worth an attempt at once, but not by all agents at the same moment. */
  #news(started: readonly HubMember[]): void {
    if (started.length > 0) {
      this.#addresses.started(started);
      this.#pace.anew();
    }
    this.reconcile();
  }
}
