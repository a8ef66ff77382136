import { setTimeout as pause } from 'node:timers/promises';
import { median } from '../figures.ts';
import { Bench, dialFigures, flowFigures, pingFigures } from './bench.ts';
import { Control } from './control.ts';
import { Flow } from './flow.ts';
import type { Figures, Result, Settings, WorkName } from './messages.ts';
import { stall } from './stall.ts';
import { closeAll, oneByte } from './tunnels.ts';
import { cpuPer, differences, usage } from './usage.ts';
import { beginPhase, Dialler, type Phase, stopAll } from './workers.ts';

/** How long idle tunnels are held before memory is measured, in milliseconds. */
const HOLD_IDLE = 1500;

/** How long the first dials of a plane may take altogether, in milliseconds. */
const FIRST_WITHIN = 60_000;

/** How many dials of a fresh plane count as its first. */
const FIRST_DIALS = 10;

/** What each of many tunnels fetches. */
const FILE_KIB = 5 * 1024;

/** Each work ends by itself. Rates are in decimal GB, MB and KB, latencies in microseconds. */
const works: Readonly<Record<WorkName, (bench: Bench) => Promise<Figures>>> = {
  bulk: (bench) => bulk(bench, false),
  upload: (bench) => bulk(bench, true),
  whole,
  ping: (bench) => ping(bench, bench.settings.conns, 0),
  'ping-under-bulk': (bench) => ping(bench, 1, bench.settings.conns),
  dials: (bench) => dials(bench, bench.settings.conns),
  idle,
  stall: (bench) => stall(bench, false),
  'stall-up': (bench) => stall(bench, true),
};

/** Does one work on one front. */
export async function worked(settings: Settings): Promise<Result> {
  const control = await Control.connect(settings.destinationPort);
  const groups = { ...settings.groups, client: [process.pid] };
  const bench = new Bench({ ...settings, groups }, control);
  const figures = await works[settings.work](bench);
  control.end();
  return { figures, errors: bench.tunnels.errors };
}

/** N tunnels move checked bytes in one direction. Only what arrives counts. */
async function bulk(bench: Bench, up: boolean): Promise<Figures> {
  const flows = await bench.startFlows(bench.settings.conns, up);
  await bench.warmUp();
  const before = await bench.look(flows, up);
  await bench.window();
  const after = await bench.look(flows, up);
  for (const { ended } of flows) if (ended) bench.tunnels.failed('flow', 'its tunnel ended');
  const { gb, figures } = flowFigures(before, after);
  await bench.finishFlows(flows);
  return { ...figures, ...cpuPer(before.used, after.used, '_cpu_s_per_gb', gb) };
}

/** N tunnels fetch a file each, all at once, and memory is measured at its highest. */
async function whole(bench: Bench): Promise<Figures> {
  const { conns, groups } = bench.settings;
  const tunnels = await bench.tunnels.openMany(conns);
  const start = performance.now();
  const came = await Promise.all(tunnels.map((tunnel) => new Flow(tunnel, bench.control.newId()).fetch(FILE_KIB)));
  const seconds = (performance.now() - start) / 1000;
  const fetched = came.filter((each) => each).length;
  return {
    gb_per_s: (fetched * FILE_KIB * 1024) / 1e9 / seconds,
    not_whole: conns - fetched,
    ...differences(new Map(), usage(groups), '_peak_mb', ({ peakMb }) => peakMb),
  };
}

/** Tunnels exchange 64 bytes in each direction, beside downloads if there are any. */
async function ping(bench: Bench, pings: number, downloads: number): Promise<Figures> {
  const workers = await bench.startPings(pings);
  const flows = downloads > 0 ? await bench.startFlows(downloads, false) : [];
  await bench.warmUp();
  const before = await bench.look(flows);
  const phase = beginPhase(workers);
  await bench.window();
  phase.end(workers);
  const after = await bench.look(flows);
  await stopAll(workers);
  await bench.finishFlows(flows);
  const perPing = phase.samples.ping.length / 1e6;
  return {
    ...pingFigures(phase),
    ...(downloads > 0 && flowFigures(before, after).figures),
    ...cpuPer(before.used, after.used, '_cpu_us_per_ping', perPing),
  };
}

/** Runs N loops of dial, one byte there and back, close: for a time, or until as many dials are done as asked for. */
async function dials(bench: Bench, length: number): Promise<Figures> {
  const { rate, first } = bench.settings;
  const every = rate > 0 ? (1000 * length) / rate : 0;
  const workers = Array.from({ length }, () => new Dialler(bench.tunnels, every));
  if (first === undefined) await bench.warmUp();
  const before = usage(bench.settings.groups);
  const phase = beginPhase(workers);
  await (first === undefined ? bench.window() : dialled(phase, first));
  phase.end(workers);
  const after = usage(bench.settings.groups);
  const done = phase.samples.cycle.length;
  const firstTen = median(phase.samples.dial.slice(0, FIRST_DIALS));
  await stopAll(workers);
  return {
    ...dialFigures(phase),
    ...(first !== undefined && firstTen !== undefined && { first_ten_p50_us: firstTen }),
    ...cpuPer(before, after, '_cpu_ms_per_dial', done / 1e3),
  };
}

async function dialled(phase: Phase, dials: number): Promise<void> {
  const late = performance.now() + FIRST_WITHIN;
  while (phase.samples.cycle.length + phase.failures < dials && performance.now() < late) await pause(2);
}

/** Opens tunnels, proves each with one byte, and holds them. */
async function idle(bench: Bench): Promise<Figures> {
  const { groups, conns, pace } = bench.settings;
  const before = usage(groups);
  const tunnels = await bench.tunnels.openMany(conns, { prove: oneByte });
  await pause(HOLD_IDLE * pace);
  const after = usage(groups);
  await closeAll(tunnels);
  const count = tunnels.length;
  if (count === 0) return {};
  return {
    ...differences(before, after, '_kb_per_tunnel', ({ mb }) => (mb * 1000) / count),
    ...differences(new Map(), before, '_rss_before_mb', ({ mb }) => mb),
  };
}
