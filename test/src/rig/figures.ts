import type { Figures } from './load/messages.ts';

/** @param values in any order; 0 if there are none */
export function quantile(values: readonly number[], q: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? 0;
}

/** Returns undefined if there are no values. */
export function median(values: readonly number[]): number | undefined {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  const [low, high] = [sorted[middle - 1], sorted[middle]];
  return sorted.length % 2 === 1 || low === undefined || high === undefined ? high : (low + high) / 2;
}

/** Three significant digits, as far as that makes sense. */
export function short(value: number): string {
  const size = Math.abs(value);
  if (size >= 10_000) return `${(value / 1000).toFixed(size >= 100_000 ? 0 : 1)}k`;
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  return value.toFixed(size >= 0.1 || size === 0 ? 2 : 3);
}

/** Figures that each process of a plane has. The plane's figure is their sum. */
const OF_PROCESSES = [
  '_cpu_s_per_gb',
  '_cpu_us_per_ping',
  '_cpu_ms_per_dial',
  '_kb_per_tunnel',
  '_rss_before_mb',
  '_rss_growth_mb',
] as const;

/** The rates of healthy tunnels while others were stalled, and before. */
const KEPT = {
  down_kept: 'down_gb_per_s',
  up_kept: 'up_gb_per_s',
  ping_kept: 'ping_pings_per_s',
  dials_kept: 'dials_per_s',
} as const;

/** Adds the sums over the plane's processes, and how much of its rate healthy traffic kept beside stalled tunnels. */
export function derived(figures: Figures, processes: readonly string[]): Figures {
  const sums = OF_PROCESSES.flatMap((suffix) => {
    const parts = processes.flatMap((name) => figures[name + suffix] ?? []);
    return parts.length > 0 ? [[`plane${suffix}`, parts.reduce((sum, part) => sum + part, 0)] as const] : [];
  });
  const kept = Object.entries(KEPT).flatMap(([name, figure]) => {
    const [before, during] = [figures[`before_${figure}`], figures[figure]];
    return before && during !== undefined ? [[name, during / before] as const] : [];
  });
  return { ...figures, ...Object.fromEntries([...sums, ...kept]) };
}

/** Returns rows as text with columns. */
export function aligned(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  const padded = (row: readonly string[]) => row.map((each, column) => each.padEnd(widths[column] ?? 0));
  return rows.map((row) => padded(row).join('  ').trimEnd()).join('\n');
}
