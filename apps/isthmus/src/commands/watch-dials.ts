import { setTimeout as pause } from 'node:timers/promises';
import { adminApi } from '@isthmus/proto/admin';
import { ISTHMUS } from '../defaults.ts';
import { isoTime, quantile } from '../output.ts';
import { admissionName, type Member } from '../plane/member.ts';
import type { Plane } from '../plane/plane.ts';

/** An answered dial, as a gateway saw it. */
export type AnsweredDial = NonNullable<ReturnType<typeof answeredDial>>;

/** Returns undefined for a dial that is still running. */
function answeredDial(gateway: string, record: adminApi.DialRecord) {
  if (record.state === adminApi.DialState.DIAL_STATE_RUNNING) return undefined;
  const { error } = record;
  return {
    gateway,
    dial: record.dialId,
    started: isoTime(record.startedMs),
    tenant: record.tenant,
    destination: record.destination,
    caller: record.caller,
    ok: record.state === adminApi.DialState.DIAL_STATE_ESTABLISHED,
    ms: record.ms ?? 0,
    agent: record.agentId,
    hub: record.hubId,
    attempts: record.attempts.length,
    parkedMs: record.parkedMs,
    ...(error && { error: { code: error.code, text: error.text } }),
    trace: record.traceId,
  };
}

/** A member's load, as it reports it. */
export type Load = ReturnType<typeof loadOf>;

/** A member, and whether it answers. */
export interface Followed {
  readonly member: Member;
  /** Unset until it has reported one. */
  load?: Load;
  /** Why and since when it does not answer; unset while it answers. */
  lost?: { readonly reason: string; readonly since: number };
}

interface Filter {
  readonly tenant: string;
  readonly destination: string;
  readonly onlyFailed: boolean;
  readonly slowerThanMs: number;
  /** Number of earlier dials to show first. */
  readonly recent: number;
}

/** Follows the dials of all gateways until the signal aborts, while members join and leave. */
export class Following {
  readonly members = new Map<string, Followed>();
  readonly #plane: Plane;
  readonly #filter: Filter;
  readonly #signal: AbortSignal;
  readonly #told: (dial: AnsweredDial) => void;
  readonly #streams = new Map<string, Promise<void>>();
  /** Dials already reported. A reopened stream starts with some earlier ones. */
  readonly #heard = new Set<string>();
  #lost = 0;

  constructor(plane: Plane, filter: Filter, signal: AbortSignal, told: (dial: AnsweredDial) => void) {
    this.#plane = plane;
    this.#filter = filter;
    this.#signal = signal;
    this.#told = told;
  }

  /** Number of dials that members could not report because this machine read too slowly. */
  get unheard(): number {
    return this.#lost;
  }

  async run(): Promise<void> {
    let metAt = performance.now();
    while (!this.#signal.aborted) {
      this.#open();
      await this.#askLoads();
      await pause(ISTHMUS.watchLoadMs, undefined, { signal: this.#signal }).catch(() => {});
      if (performance.now() - metAt < ISTHMUS.watchMembersMs || this.#signal.aborted) continue;
      metAt = performance.now();
      // If nobody answers, the known members are asked until one comes back.
      await this.#plane.meet().catch(() => {});
    }
    await Promise.all(this.#streams.values());
  }

  #open(): void {
    const named = new Set(this.#plane.members.map(({ id }) => id));
    for (const id of this.members.keys()) if (!named.has(id)) this.members.delete(id);
    for (const member of this.#plane.members) {
      const known = this.members.get(member.id);
      this.members.set(member.id, { ...known, member });
      if (!member.roles.includes('gateway') || this.#streams.has(member.id)) continue;
      const stream = this.#stream(member.id).finally(() => this.#streams.delete(member.id));
      this.#streams.set(member.id, stream);
    }
  }

  async #askLoads(): Promise<void> {
    const { answers, unanswered } = await this.#plane.ask((admin, signal) => admin.getStatus({}, { signal }));
    for (const { member, value } of answers) this.members.set(member.id, { member, load: loadOf(value) });
    for (const { member: id, reason } of unanswered) {
      const known = this.members.get(id);
      if (known && !this.#signal.aborted) known.lost = { reason, since: known.lost?.since ?? Date.now() };
    }
  }

  /** Follows one gateway's dials. Reopens the stream whenever it ends, for as long as the gateway is in the plane. */
  async #stream(id: string): Promise<void> {
    const { recent, ...filter } = this.#filter;
    for (let first = true; !this.#signal.aborted; first = false) {
      const member = this.members.get(id)?.member;
      if (!member) return;
      try {
        const request = {
          ...filter,
          role: adminApi.Role.ROLE_GATEWAY,
          recent: first ? recent : ISTHMUS.watchMissedDials,
        };
        for await (const { dial, lost } of this.#plane.client(member).watchDials(request, { signal: this.#signal })) {
          this.#lost += lost;
          const view = dial && answeredDial(id, dial);
          if (view) this.#tell(view);
        }
      } catch {
        // `#askLoads` finds out whether and why it does not answer.
      }
      await pause(ISTHMUS.watchAgainMs, undefined, { signal: this.#signal }).catch(() => {});
    }
  }

  #tell(dial: AnsweredDial): void {
    if (this.#heard.has(dial.dial)) return;
    this.#heard.add(dial.dial);
    const [oldest] = this.#heard;
    if (this.#heard.size > ISTHMUS.watchToldDials && oldest !== undefined) this.#heard.delete(oldest);
    this.#told(dial);
  }
}

function loadOf(status: adminApi.GetStatusResponse) {
  const [rate] = status.dialRates;
  return {
    ready: status.ready,
    admission: admissionName(status),
    sessions: status.sessions,
    tunnels: status.tunnels,
    pending: status.pendingDials,
    parked: status.parkedDials,
    dialsPerSecond: rate?.dialsPerSecond ?? 0,
    failuresPerSecond: rate?.failuresPerSecond ?? 0,
  };
}

interface Kept {
  readonly view: AnsweredDial;
  /** When it ended, in milliseconds since the epoch. */
  readonly at: number;
}

/** The dials of one tenant. Times in milliseconds. */
export type TenantDials = ReturnType<DialsOfMinute['tenants']>[number];

export interface ErrorView {
  readonly code: string;
  readonly count: number;
  /** The latest dial with this error. */
  readonly last: AnsweredDial;
}

/** The dials of the last minute, each once, even if several members report it. */
export class DialsOfMinute {
  readonly #kept = new Map<string, Kept>();
  /** Dials of each second, the latest last. */
  readonly #seconds = new Map<number, { dials: number; failed: number }>();

  add(view: AnsweredDial): void {
    if (this.#kept.has(view.dial)) return;
    const at = Date.parse(view.started) + view.ms;
    this.#kept.set(view.dial, { view, at });
    const second = Math.floor(at / 1000);
    const sums = this.#seconds.get(second) ?? { dials: 0, failed: 0 };
    sums.dials++;
    if (!view.ok) sums.failed++;
    this.#seconds.set(second, sums);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > ISTHMUS.watchKeptDials && oldest !== undefined) this.#kept.delete(oldest);
  }

  forget(now: number): void {
    for (const [id, { at }] of this.#kept) if (at < now - ISTHMUS.watchWindowMs) this.#kept.delete(id);
    for (const second of this.#seconds.keys())
      if (second < now / 1000 - 2 * (ISTHMUS.watchWindowMs / 1000)) this.#seconds.delete(second);
  }

  /** Returns the dials of each of the last full seconds, oldest first. */
  perSecond(now: number, seconds: number): number[] {
    const last = Math.floor(now / 1000) - 1;
    return Array.from({ length: seconds }, (_, index) => this.#seconds.get(last - seconds + 1 + index)?.dials ?? 0);
  }

  /** Returns rates per second, over the last ten full seconds. */
  rates(now: number): { readonly dials: number; readonly failed: number } {
    const last = Math.floor(now / 1000) - 1;
    const sums = Array.from({ length: 10 }, (_, index) => this.#seconds.get(last - index));
    const rate = (of: 'dials' | 'failed') => sums.reduce((sum, each) => sum + (each?.[of] ?? 0), 0) / sums.length;
    return { dials: rate('dials'), failed: rate('failed') };
  }

  tenants() {
    return [...Map.groupBy(this.#kept.values(), ({ view }) => view.tenant)]
      .map(([tenant, dials]) => {
        const times = dials.map(({ view }) => view.ms).sort((a, b) => a - b);
        const failed = dials.filter(({ view }) => !view.ok).length;
        return { tenant, dials: dials.length, failed, p50: quantile(times, 0.5), p99: quantile(times, 0.99) };
      })
      .sort((a, b) => b.dials - a.dials);
  }

  /** Returns the errors by code, the most frequent first. */
  errors(): ErrorView[] {
    const groups = new Map<string, ErrorView>();
    for (const { view } of this.#kept.values()) {
      if (!view.error) continue;
      const { code } = view.error;
      groups.set(code, { code, count: (groups.get(code)?.count ?? 0) + 1, last: view });
    }
    return [...groups.values()].sort((a, b) => b.count - a.count);
  }

  /** Returns those that `wanted` accepts, apart from these. */
  only(wanted: (dial: AnsweredDial) => boolean): DialsOfMinute {
    const found = new DialsOfMinute();
    for (const { view } of this.#kept.values()) if (wanted(view)) found.add(view);
    return found;
  }

  newest(count: number): AnsweredDial[] {
    return [...this.#kept.values()]
      .sort((a, b) => b.at - a.at)
      .slice(0, count)
      .map(({ view }) => view);
  }

  slowest(count: number): AnsweredDial[] {
    return [...this.#kept.values()]
      .map(({ view }) => view)
      .sort((a, b) => b.ms - a.ms)
      .slice(0, count);
  }
}
