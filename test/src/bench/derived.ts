import type { Figures } from './load/messages.ts';

/** Figures that each process of a plane has. The plane's figure is their sum. */
const OF_PROCESSES = [
  '_cpu_s_per_gb',
  '_cpu_us_per_ping',
  '_cpu_ms_per_dial',
  '_minstr_per_dial',
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
