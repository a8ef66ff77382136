import { quantile } from '../output/quantile.ts';
import type { DialView } from './dial.ts';

/** Time span that the screen covers. */
export const WINDOW_MS = 60_000;

/** Dials to keep: 300 per second for a minute. Above that the oldest are dropped, and rates still count them. */
const MAX_KEPT = 20_000;

interface Kept {
  readonly view: DialView;
  /** When it ended, in milliseconds since the epoch. */
  readonly at: number;
}

export interface TenantView {
  readonly tenant: string;
  readonly dials: number;
  readonly failed: number;
  readonly p50: number;
  readonly p99: number;
}

export interface ErrorView {
  readonly code: string;
  readonly count: number;
  /** The latest dial with this error. */
  readonly last: DialView;
}

/** The dials of the last minute, each once, even if several members report it. */
export class RecentDials {
  readonly #kept = new Map<string, Kept>();
  /** Dials of each second, the latest last. */
  readonly #seconds = new Map<number, { dials: number; failed: number }>();

  add(view: DialView): void {
    if (this.#kept.has(view.dial)) return;
    const at = Date.parse(view.started) + view.ms;
    this.#kept.set(view.dial, { view, at });
    const second = Math.floor(at / 1000);
    const sums = this.#seconds.get(second) ?? { dials: 0, failed: 0 };
    sums.dials++;
    if (!view.ok) sums.failed++;
    this.#seconds.set(second, sums);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > MAX_KEPT && oldest !== undefined) this.#kept.delete(oldest);
  }

  forget(now: number): void {
    for (const [id, { at }] of this.#kept) if (at < now - WINDOW_MS) this.#kept.delete(id);
    for (const second of this.#seconds.keys())
      if (second < now / 1000 - 2 * (WINDOW_MS / 1000)) this.#seconds.delete(second);
  }

  /** Returns the dials of each of the last full seconds, oldest first. */
  perSecond(now: number, seconds = WINDOW_MS / 1000): number[] {
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

  tenants(): TenantView[] {
    const groups = new Map<string, DialView[]>();
    for (const { view } of this.#kept.values()) {
      const group = groups.get(view.tenant);
      if (group) group.push(view);
      else groups.set(view.tenant, [view]);
    }
    return [...groups]
      .map(([tenant, views]) => {
        const times = views.map(({ ms }) => ms).sort((a, b) => a - b);
        const failed = views.filter(({ ok }) => !ok).length;
        return { tenant, dials: views.length, failed, p50: quantile(times, 0.5), p99: quantile(times, 0.99) };
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
  only(wanted: (dial: DialView) => boolean): RecentDials {
    const found = new RecentDials();
    for (const { view } of this.#kept.values()) if (wanted(view)) found.add(view);
    return found;
  }

  newest(count: number): DialView[] {
    return [...this.#kept.values()]
      .sort((a, b) => b.at - a.at)
      .slice(0, count)
      .map(({ view }) => view);
  }

  slowest(count: number): DialView[] {
    return [...this.#kept.values()]
      .map(({ view }) => view)
      .sort((a, b) => b.ms - a.ms)
      .slice(0, count);
  }
}
