import { setTimeout as sleep } from 'node:timers/promises';
import { aborted } from 'node:util';
import { Scope } from '../harness/index.ts';
import { Load } from '../rig/calling.ts';
import { listening } from '../rig/child.ts';
import { clock } from '../rig/clock.ts';
import type { DestinationState } from '../rig/load/destination.ts';
import { type Topology, whole } from '../rig/plane.ts';
import { type Figures, judge } from './figures.ts';
import { normalAgain, p99 } from './normal.ts';
import type { Context, Measure, Row, Strike } from './row.ts';

export const DIALS_PER_SECOND = 200;
export const LONG_TUNNELS = 50;

export interface Outcome {
  readonly row: Row;
  /** Why it did not run. */
  readonly skipped?: string;
  readonly figures?: Figures;
  readonly measures: readonly Measure[];
  readonly notes: readonly string[];
  /** The slowest of a hundred dials before the fault, in milliseconds. */
  readonly before: number;
  /** From the end of the fault until all was as before, in milliseconds. */
  readonly normalMs?: number;
  /** Share of one processor, for the callers alone. */
  readonly loadCpu: number;
  readonly seconds: number;
  /** What does not hold; empty if the row holds. */
  readonly problems: readonly string[];
}

export interface RunOptions {
  /** Short phases, for a machine that has other work: counts are judged, times are only reported. */
  readonly short: boolean;
  /** Dials per second. */
  readonly rate: number;
  /** Ends the row early, with everything that it started. */
  readonly signal: AbortSignal;
}

/** The outcome of a row that has not run. */
function nothingOf(row: Row): Outcome {
  return { row, measures: [], notes: [], before: 0, loadCpu: 0, seconds: 0, problems: [] };
}

/** Starts what a row runs against, loads it, injects the fault, and judges the outcome. */
export async function runRow(row: Row, options: RunOptions): Promise<Outcome> {
  const begin = clock();
  const skipped = row.skip?.();
  if (skipped) return { ...nothingOf(row), skipped };
  try {
    await using scope = new Scope();
    const stopped = aborted(options.signal, scope).then(() => options.signal.throwIfAborted() as never);
    const outcome = await Promise.race([stopped, observe(scope, row, options)]);
    return { ...outcome, row, seconds: (clock() - begin) / 1000 };
  } catch (error) {
    return { ...nothingOf(row), seconds: (clock() - begin) / 1000, problems: [(error as Error).message] };
  }
}

async function observe(scope: Scope, row: Row, { short, rate }: RunOptions): Promise<Omit<Outcome, 'row' | 'seconds'>> {
  const { port, child } = await listening(scope, 'rig/load/destination.ts', { argument: '0.0.0.0' });
  const plane = await row.topology(scope);
  await whole(plane);
  const calls = {
    doors: plane.doors,
    port,
    dialsPerSecond: Math.min(rate, row.dialsPerSecond ?? rate),
    tunnels: LONG_TUNNELS,
    ...(row.dialBytes && { dialBytes: row.dialBytes }),
    ...(row.tunnelLife && { tunnelLife: row.tunnelLife(short) }),
  };
  const load = scope.use(new Load(calls));
  const before = await baseline(load, short ? 1000 : 5000);

  const [from, cpuFrom] = [clock(), load.cpuMs];
  const told: Told = { strikes: [], measures: [], notes: [] };
  const { strikes, measures, notes } = told;
  const context = { scope, plane, load, destination: `127.0.0.1:${port}`, short, ...doing(plane, short, told) };
  const failure = await row.inject(context).then(
    () => undefined,
    (error: Error) => error.message,
  );
  const normal = await normalAgain(load, plane, short ? undefined : before, clock());
  const loadCpu = (load.cpuMs - cpuFrom) / (clock() - from);
  await load.stop();
  const { ends, wrong } = await child.ask<DestinationState>('state');

  const dials = load.dials.filter(({ at, ms }) => at + ms >= from);
  // Tunnels that ended because the load stopped are not in this list.
  const cuts = load.cuts.filter(({ at }) => at >= from);
  const seen = { dials, cuts, pauses: load.pauses, ends, strikes, before, timed: !short };
  const { figures, problems } = judge(seen, row.bounds, measures);
  const all = [
    ...(failure ? [failure] : []),
    ...[...load.wrong, ...wrong].slice(0, 5),
    ...problems,
    ...(normal.ms === undefined ? [`not back to normal within 60 s: ${normal.lacking}`] : []),
  ];
  const normalMs = normal.ms === undefined ? {} : { normalMs: normal.ms };
  return { figures, measures, notes, before, ...normalMs, loadCpu, problems: all };
}

/** Measures what is usual on this machine today, once all tunnels carry data. */
async function baseline(load: Load, ms: number): Promise<number> {
  await load.flows();
  const from = clock();
  await sleep(ms);
  const dials = load.dials.filter(({ at }) => at >= from);
  const failed = dials.find(({ outcome }) => outcome !== 'ok');
  if (failed) throw new Error(`a dial failed before the fault: ${failed.error}`);
  return p99(dials);
}

/** What a row reports about its fault. */
interface Told {
  readonly strikes: Strike[];
  readonly measures: Measure[];
  readonly notes: string[];
}

/** What a row does, as `told` keeps it. */
export function doing(
  plane: Topology,
  short: boolean,
  { strikes, measures, notes }: Told,
): Pick<Context, 'strike' | 'hold' | 'measure' | 'note'> {
  return {
    async strike({ takes, touches, gateway, fatal = takes !== undefined }, commit) {
      if (plane.held && gateway !== undefined) throw new Error('a gateway behind isthmus hold has no door of its own');
      const carried = await plane.carried();
      const tunnels = new Set(carried.filter((each) => takes?.(each)).map(({ tunnel }) => tunnel));
      const outlive = new Set(carried.filter((each) => touches?.(each)).map(({ tunnel }) => tunnel));
      if (touches && !takes && outlive.size === 0)
        throw new Error('no long tunnel runs through what is struck: nothing would be shown');
      if (tunnels.size + outlive.size === 0) notes.push('no long tunnel ran through what was struck');
      const at = clock();
      await commit();
      const strike = {
        at,
        over: fatal ? clock() : at,
        tunnels,
        outlive,
        fatal,
        ...(gateway !== undefined && { gateway }),
      };
      strikes.push(strike);
      return strike;
    },
    hold: (ms, shortMs = ms / 4) => sleep(short ? shortMs : ms),
    measure: (name, value, unit = '', most) =>
      void measures.push({ name, value, unit, ...(most !== undefined && { most }) }),
    note: (text) => void notes.push(text),
  };
}
