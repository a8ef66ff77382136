import type { adminApi } from '@isthmus/proto/admin';
import { getOrPut, LruMap, Ring, SharedBudget } from '@isthmus/runtime';
import {
  type Destination,
  type DialLog,
  type DialOutcome,
  type DialRequest,
  formatDestination,
  type PlaneEvents,
  type Role,
} from '@isthmus/tunnel';
import { ADMIN } from '../defaults.ts';

/** A dial as one role saw it. It references no stream, signal or callback of the dial. */
export interface SeenDial {
  readonly role: Role;
  readonly id: string;
  readonly tenant: string;
  readonly destination: Destination;
  readonly caller: DialRequest['caller'];
  readonly trial: DialRequest['trial'];
  readonly traceparent: string | undefined;
  /** Set only for the gateway role. In a process with both roles, the hub's dial carries it too. */
  readonly log: DialLog | undefined;
  /** The session that a gateway sent it to. Unset in the gateway's own view. */
  readonly session: string | undefined;
  /** When it started, in milliseconds of `performance.now()`. */
  readonly start: number;
  /** Unset while it runs. */
  readonly outcome: DialOutcome | undefined;
  /** From the answer to the destination's first byte. Set only for the gateway role, once the byte has passed. */
  readonly firstByteMs?: number;
}

/** @param again whether it was reported before, and its first byte has passed since */
type Watcher = (dial: SeenDial, again: boolean) => void;

/** What the admin RPC reads of a process's dials, or of those of one tenant. */
export type SeenDials = Pick<
  RecentDials,
  'parked' | 'pending' | 'callersOf' | 'find' | 'watch' | typeof Symbol.iterator
>;

/**
 * The dials of this process: their number, the latest ones, and for watchers each start and end. A dial costs one small object and a
 * few additions. Text is formatted only on request.
 */
export class RecentDials {
  readonly #ring = new Ring<SeenDial>(ADMIN.dials);
  readonly #remarkable = new Ring<SeenDial>(ADMIN.remarkableDials);
  /** By tenant. */
  readonly #pending: Readonly<Record<Role, Map<string, number>>> = {
    gateway: new Map(),
    hub: new Map(),
    agent: new Map(),
  };
  /** When callers that have proven who they are last dialled, by tenant and name. */
  readonly #callers = new LruMap<string, LruMap<string, number>>(ADMIN.callersTenants);
  readonly #watchers = new Set<Watcher>();
  /** Operators of one tenant get no more than they leave to others. */
  readonly #places = new SharedBudget(ADMIN.watchers, true);
  /** The kept dials whose tunnels are open. */
  readonly #open = new WeakMap<DialRequest, { firstByteMs?: number } & SeenDial>();
  #parked = 0;

  constructor(events: PlaneEvents) {
    events.on('dial:start', this.#began.bind(this));
    events.on('dial:end', this.#ended.bind(this));
    events.on('tunnel:first-byte', ({ dial }, ms) => this.#answered(dial, ms));
    events.on('dial:park', () => {
      this.#parked++;
    });
    events.on('dial:unpark', () => {
      this.#parked--;
    });
  }

  /** Dials that wait for a session to open. */
  get parked(): number {
    return this.#parked;
  }

  get watchers(): number {
    return this.#watchers.size;
  }

  /** Dials without an answer yet. @param tenant unset: of all */
  pending(role: Role, tenant?: string): number {
    const pending = this.#pending[role];
    return tenant === undefined ? [...pending.values()].reduce((sum, of) => sum + of, 0) : (pending.get(tenant) ?? 0);
  }

  /** The names of a tenant's callers that dialled lately, in order. */
  callersOf(tenant: string, now = performance.now()): string[] {
    const known = [...(this.#callers.get(tenant) ?? [])];
    return known.flatMap(([name, at]) => (now - at < ADMIN.callerMs ? [name] : [])).sort();
  }

  /** Yields the kept dials, in the order in which they ended. */
  *[Symbol.iterator](): Iterator<SeenDial> {
    const last = new Set(this.#ring);
    // A dial outside the last ones ended before all of them.
    for (const dial of this.#remarkable) if (!last.has(dial)) yield dial;
    yield* last;
  }

  /** Returns a dial that ended a moment ago. */
  find(id: string, role: Role): SeenDial | undefined {
    return [...this.#ring].findLast((dial) => dial.id === id && dial.role === role);
  }

  /**
   * Calls `watcher` when a dial starts and when it ends. Returns what stops it; undefined if there are too many.
   * @param tenant whose operator watches; unset: the plane's
   */
  watch(watcher: Watcher, tenant?: string): (() => void) | undefined {
    if (!this.#places.take(1, tenant)) return undefined;
    this.#watchers.add(watcher);
    return () => {
      if (this.#watchers.delete(watcher)) this.#places.give(1, tenant);
    };
  }

  #began(role: Role, dial: DialRequest): void {
    this.#count(role, dial.tenant, 1);
    const { principal } = dial.caller ?? {};
    if (role === 'gateway' && principal?.role === 'caller')
      getOrPut(this.#callers, principal.tenant, () => new LruMap(ADMIN.callersOfTenant)).set(
        principal.name,
        performance.now(),
      );
    if (this.#watchers.size === 0) return;
    const seen = seenDial(role, dial, performance.now(), undefined);
    for (const watcher of this.#watchers) watcher(seen, false);
  }

  #ended(role: Role, dial: DialRequest, outcome: DialOutcome): void {
    const now = performance.now();
    this.#count(role, dial.tenant, -1);
    const seen = seenDial(role, dial, now - outcome.ms, outcome);
    this.#ring.push(seen);
    if (outcome.error || outcome.ms >= ADMIN.slowDialMs) this.#remarkable.push(seen);
    if (role === 'gateway' && !outcome.error) this.#open.set(dial, seen);
    for (const watcher of this.#watchers) watcher(seen, false);
  }

  #answered(dial: DialRequest, ms: number): void {
    const seen = this.#open.get(dial);
    if (!seen) return;
    seen.firstByteMs = ms;
    for (const watcher of this.#watchers) watcher(seen, true);
  }

  #count(role: Role, tenant: string, by: 1 | -1): void {
    const tenants = this.#pending[role];
    const left = (tenants.get(tenant) ?? 0) + by;
    if (left === 0) tenants.delete(tenant);
    else tenants.set(tenant, left);
  }
}

function seenDial(role: Role, dial: DialRequest, start: number, outcome: DialOutcome | undefined): SeenDial {
  const { id, tenant, destination, caller, trial, traceparent, session } = dial;
  const log = role === 'gateway' ? dial.log : undefined;
  return { role, id, tenant, destination, caller, trial, traceparent, log, session, start, outcome };
}

interface Failing {
  readonly last: SeenDial;
  readonly count: number;
  readonly agents: ReadonlySet<string>;
}

/**
 * Returns what fails again and again, and has not succeeded since. A slow failure counts for as much as a fast one: those of which there
 * are most in the last five minutes come first.
 */
export function failingDials(dials: SeenDials, role: Role, now = performance.now()): adminApi.FailingDials[] {
  const found = new Map<string, Map<string, Failing>>();
  for (const dial of dials) {
    const { outcome, tenant, destination, trial } = dial;
    // What an operator tried and did not reach, no caller missed.
    if (outcome?.error && trial) continue;
    if (dial.role !== role || !outcome || dial.start + outcome.ms < now - ADMIN.failingWithinMs) continue;
    const key = JSON.stringify([tenant, formatDestination(destination)]);
    if (!outcome.error) found.delete(key);
    else
      add(
        getOrPut(found, key, () => new Map()),
        outcome.error.code,
        dial,
      );
  }
  return [...found.values()]
    .flatMap((codes) => [...codes.values()])
    .filter(({ count }) => count >= ADMIN.failures)
    .sort((a, b) => b.count - a.count)
    .slice(0, ADMIN.failingReported)
    .map((failing) => message(failing, now));
}

function add(codes: Map<string, Failing>, code: string, dial: SeenDial): void {
  const { count = 0, agents = new Set<string>() } = codes.get(code) ?? {};
  const agent = dial.outcome?.agentId ?? dial.log?.attempts.at(-1)?.agentId;
  codes.set(code, { last: dial, count: count + 1, agents: agent === undefined ? agents : new Set([...agents, agent]) });
}

function message({ last, count, agents }: Failing, now: number): adminApi.FailingDials {
  const { tenant, destination, start, outcome } = last;
  const agoMs = now - (start + (outcome?.ms ?? 0));
  return {
    tenant,
    destination: formatDestination(destination),
    code: outcome?.error?.code ?? '',
    text: outcome?.error?.message ?? '',
    count,
    lastMs: Math.round(Date.now() - agoMs),
    agents: [...agents].slice(0, ADMIN.failingAgents),
    agentCount: agents.size,
  };
}
