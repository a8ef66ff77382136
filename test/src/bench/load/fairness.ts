import { setTimeout as pause } from 'node:timers/promises';
import { Scope } from '../../harness/index.ts';
import { type Flooding, flooding } from '../../rig/load/flooding.ts';
import type { Figures, FloodSettings } from '../../rig/load/messages.ts';
import { memoryGrowth, usage } from '../../rig/load/usage.ts';
import { beginPhase, Dialler, Phase, type Pinger, stopAll } from '../../rig/load/workers.ts';
import { type Bench, dialFigures, flowFigures, pingFigures } from './bench.ts';

/** How long the quiet tenant runs before it is measured alone, in milliseconds: a fresh plane is slower. */
const GET_GOING = 4000;

/** How long a flood runs before its effect is measured, in milliseconds. */
const SETTLE = 2000;

/** How long a plane rests after a flood, in milliseconds: 5,000 tunnels end then. */
const REST = 5000;

/** Floods of a run, with a time without between them: a machine that has other work is not as fast all the time. */
const ROUNDS = 3;

/** What the quiet tenant does, far below what a plane carries: pings, and dials a second. */
const PINGS = 4;
const DIAL_LOOPS = 4;
const DIALS_PER_SECOND = 100;

/** Downloads of the quiet tenant, as many as the flood has, where shares are measured. */
const DOWNLOADS = 32;

interface Quiet {
  readonly pings: readonly Pinger[];
  readonly dialling: readonly Dialler[];
}

/** What was seen of the quiet tenant. */
class Seen {
  readonly pings = new Phase();
  readonly dials = new Phase();

  figures(prefix: string): Record<string, number> {
    return { ...pingFigures(this.pings, `${prefix}ping_`), ...dialFigures(this.dials, prefix) };
  }
}

/** One tenant pings and dials a little, alone and beside another that floods, in turn. What it loses is the unfairness. */
export async function fairness(bench: Bench): Promise<Figures> {
  const { flood: settings, pace, groups } = bench.settings;
  if (!settings) throw new Error('this plane has no second tenant to flood it');
  const quiet: Quiet = {
    pings: await bench.startPings(PINGS),
    dialling: Array.from(
      { length: DIAL_LOOPS },
      () => new Dialler(bench.tunnels, (1000 * DIAL_LOOPS) / DIALS_PER_SECOND),
    ),
  };
  await pause(GET_GOING * pace);
  const seen = { alone: new Seen(), beside: new Seen() };
  const memory = usage(groups);
  let floods: Figures = {};
  for (let round = 1; round <= ROUNDS; round++) {
    await measure(quiet, bench.settings.windowMs, seen.alone);
    floods = added(floods, await besideFlood(bench, settings, quiet, seen.beside, round === ROUNDS));
    await pause(REST * pace);
  }
  const growth = memoryGrowth(memory, usage(groups));
  await stopAll([...quiet.pings, ...quiet.dialling]);
  const alone = seen.alone.figures('before_');
  const beside = seen.beside.figures('');
  const compared = ['ping_p50', 'ping_p99', 'dial_p50', 'dial_p99'].map((figure) => times(beside, alone, figure));
  const { dials = 0, seconds = 1, ...rest } = floods;
  return Object.assign({ flood_dials_per_s: dials / seconds }, alone, beside, growth, rest, ...compared);
}

/** Measures during one flood. @param last whether shares are measured too */
async function besideFlood(
  bench: Bench,
  settings: FloodSettings,
  quiet: Quiet,
  seen: Seen,
  last: boolean,
): Promise<Figures> {
  const { windowMs, pace } = bench.settings;
  await using scope = new Scope();
  const flood = await flooding(scope, settings);
  await pause(SETTLE * pace);
  const from = await flood.done();
  await measure(quiet, windowMs, seen);
  const done = await flood.done();
  return {
    ...(last && settings.held.downloads && (await share(bench, flood))),
    dials: done.dials - from.dials,
    seconds: windowMs / 1000,
    flood_dials_failed: done.failures,
    ...(last && { flood_tunnels: done.tunnels }),
  };
}

/** Adds what is seen in this time. */
async function measure({ pings, dialling }: Quiet, ms: number, seen: Seen): Promise<void> {
  const [pinging, dials] = [beginPhase(pings), beginPhase(dialling)];
  await pause(ms);
  seen.pings.add(pinging.end(pings));
  seen.dials.add(dials.end(dialling));
}

function added(sums: Figures, figures: Figures): Figures {
  const entries = Object.entries(figures).map(([name, value]) => [name, value + (sums[name] ?? 0)] as const);
  return { ...sums, ...Object.fromEntries(entries) };
}

/** How many times as much it is beside the flood; nothing if there is nothing to compare. */
function times(beside: Figures, alone: Figures, figure: string): Figures {
  const [now, before] = [beside[`${figure}_us`], alone[`before_${figure}_us`]];
  return now !== undefined && before !== undefined ? { [`${figure}_times`]: now / before } : {};
}

/** Both tenants download as much as they can. */
async function share(bench: Bench, flood: Flooding): Promise<Figures> {
  const { windowMs, pace } = bench.settings;
  const flows = await bench.startFlows(DOWNLOADS, false);
  await pause(SETTLE * pace);
  const [from, before] = [await flood.done(), await bench.look(flows)];
  await pause(windowMs);
  const [done, after] = [await flood.done(), await bench.look(flows)];
  const { gb } = flowFigures(before, after);
  await bench.finishFlows(flows);
  const all = gb + (done.bytes - from.bytes) / 1e9;
  return { share: gb / all, gb_per_s_of_both: all / (windowMs / 1000) };
}
