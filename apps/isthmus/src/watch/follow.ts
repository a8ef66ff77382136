import { setTimeout as pause } from 'node:timers/promises';
import { adminApi } from '@isthmus/proto/admin';
import { type AdmissionName, admissionName, type Member } from '../plane/member.ts';
import type { Plane } from '../plane/plane.ts';
import { type DialView, dialViewOf } from './dial.ts';

/** A member's load, as it reports it. */
export interface Load {
  readonly ready: boolean;
  readonly admission: AdmissionName | undefined;
  readonly sessions: number;
  readonly tunnels: number;
  readonly pending: number;
  readonly parked: number;
  readonly dialsPerSecond: number;
  readonly failuresPerSecond: number;
}

/** A member, and whether it answers. */
export interface Followed {
  readonly member: Member;
  /** Unset until it has reported one. */
  load?: Load;
  /** Why and since when it does not answer; unset while it answers. */
  lost?: { readonly reason: string; readonly since: number };
}

export interface Filter {
  readonly tenant: string;
  readonly destination: string;
  readonly onlyFailed: boolean;
  readonly slowerThanMs: number;
  /** Number of earlier dials to show first. */
  readonly recent: number;
}

/** How often to ask for the loads, and for the members. */
const ASK_MS = 1000;
const MEET_MS = 5000;

/** Pause before a stream that ended is opened again. */
const AGAIN_MS = 1000;

/** Follows the dials of all gateways until the signal aborts, while members join and leave. */
export class Following {
  readonly members = new Map<string, Followed>();
  readonly #plane: Plane;
  readonly #filter: Filter;
  readonly #signal: AbortSignal;
  readonly #told: (dial: DialView) => void;
  readonly #streams = new Map<string, Promise<void>>();
  /** Dials already reported. A reopened stream starts with some earlier ones. */
  readonly #heard = new Set<string>();
  #lost = 0;

  constructor(plane: Plane, filter: Filter, signal: AbortSignal, told: (dial: DialView) => void) {
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
      await pause(ASK_MS, undefined, { signal: this.#signal }).catch(() => {});
      if (performance.now() - metAt < MEET_MS || this.#signal.aborted) continue;
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
        const request = { ...filter, role: adminApi.Role.ROLE_GATEWAY, recent: first ? recent : MAX_MISSED_DIALS };
        for await (const { dial, lost } of this.#plane.client(member).watchDials(request, { signal: this.#signal })) {
          this.#lost += Number(lost);
          const view = dial && dialViewOf(id, dial);
          if (view) this.#tell(view);
        }
      } catch {
        // `#askLoads` finds out whether and why it does not answer.
      }
      await pause(AGAIN_MS, undefined, { signal: this.#signal }).catch(() => {});
    }
  }

  #tell(dial: DialView): void {
    if (this.#heard.has(dial.dial)) return;
    this.#heard.add(dial.dial);
    const [oldest] = this.#heard;
    if (this.#heard.size > MAX_HEARD && oldest !== undefined) this.#heard.delete(oldest);
    this.#told(dial);
  }
}

/** Number of dials to fetch again after a lost stream, and number of dials to remember for that. */
const MAX_MISSED_DIALS = 100;
const MAX_HEARD = 10_000;

function loadOf(status: adminApi.GetStatusResponse): Load {
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
