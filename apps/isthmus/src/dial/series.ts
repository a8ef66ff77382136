import { setTimeout as pause } from 'node:timers/promises';
import { quantile } from '../output/quantile.ts';
import type { Style } from '../output/style.ts';
import { millis, plural } from '../output/units.ts';
import type { DialView } from './text.ts';

export interface SeriesOptions {
  readonly count: number;
  /** From the start of one dial to the start of the next. A dial that takes longer delays the next one. */
  readonly intervalMs: number;
  /** Ends the series early. */
  readonly signal: AbortSignal;
}

/** Dials again and again, never twice at once. */
export async function* series(
  once: () => Promise<DialView>,
  { count, intervalMs, signal }: SeriesOptions,
): AsyncGenerator<DialView> {
  for (let done = 0; done < count && !signal.aborted; done++) {
    const start = performance.now();
    yield await once();
    const left = start + intervalMs - performance.now();
    if (done + 1 < count && left > 0) await pause(left, undefined, { signal }).catch(() => {});
  }
}

/** What a series of dials says. Times are of dials that were established, in milliseconds. */
export interface Summary {
  readonly dials: number;
  readonly failed: number;
  /** Failed dials by the name of their error, the most frequent first. */
  readonly errors: readonly { readonly code: string; readonly count: number }[];
  /** Established dials by agent, the most frequent first. */
  readonly agents: readonly { readonly agent: string; readonly count: number }[];
  readonly minMs?: number;
  readonly p50Ms?: number;
  readonly p90Ms?: number;
  readonly p99Ms?: number;
  readonly maxMs?: number;
}

export function summaryOf(dials: readonly DialView[]): Summary {
  const good = dials.filter(({ ok }) => ok);
  const times = good.map(({ ms }) => ms).sort((a, b) => a - b);
  const counted = (names: readonly string[]) => {
    const counts = new Map<string, number>();
    for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
    return [...counts].sort(([, a], [, b]) => b - a);
  };
  const failed = dials.filter(({ ok }) => !ok).map(({ error }) => error?.code ?? '');
  const agents = good.map(({ agent }) => agent).filter((agent) => agent !== '');
  return {
    dials: dials.length,
    failed: failed.length,
    errors: counted(failed).map(([code, count]) => ({ code, count })),
    agents: counted(agents).map(([agent, count]) => ({ agent, count })),
    ...(times.length > 0 && {
      minMs: quantile(times, 0),
      p50Ms: quantile(times, 0.5),
      p90Ms: quantile(times, 0.9),
      p99Ms: quantile(times, 0.99),
      maxMs: quantile(times, 1),
    }),
  };
}

export function seriesText(summary: Summary, style: Style): string {
  const { dials, failed, errors, agents, minMs = 0, p50Ms = 0, p90Ms = 0, p99Ms = 0, maxMs } = summary;
  const why = errors.map(({ code, count }) => `${count} ${code}`).join(', ');
  const bad = failed > 0 ? style.bad(`${failed} failed (${why})`) : style.good('none failed');
  const spread =
    agents.length > 0 ? `through ${agents.map(({ agent, count }) => `${agent} (${count})`).join(', ')}\n` : '';
  const [min, p50, p90, p99, max] = [minMs, p50Ms, p90Ms, p99Ms, maxMs ?? 0].map(millis);
  const times = maxMs === undefined ? '' : `min ${min}   p50 ${p50}   p90 ${p90}   p99 ${p99}   max ${max}\n`;
  return `\n${plural(dials, 'dial')}, ${bad}\n${spread}${times}`;
}
