import { readFileSync } from 'node:fs';
import type { Duplex } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import { type Bench, dialFigures, flowFigures, pingFigures } from './bench.ts';
import { Flow } from './flow.ts';
import type { Figures } from './messages.ts';
import { header } from './modes.ts';
import { closeAll, STANDING } from './tunnels.ts';
import { differences, usage } from './usage.ts';
import { beginPhase, Dialler, type Pinger, stopAll } from './workers.ts';

/** How long the healthy load runs before it is measured, since a fresh plane is slower, and how long it is measured, in milliseconds. */
const GET_GOING = 3000;
const ALONE = 1000;

/**
 * Time from the stall to the measurement, in milliseconds: until the way takes in nothing more. It fills as fast as it carries, and 500
 * tunnels have a gigabyte to fill.
 */
const SETTLE = 2000;
const SETTLED_WITHIN = 60_000;
const LOOK_EVERY = 500;
/** What was taken in may still grow by this fraction between two checks. */
const STILL = 0.005;

const HEALTHY_DIALS = 2;

/** Traffic that has nothing to do with the stalled tunnels: a download, an upload, a ping, and new dials all the time. */
interface Healthy {
  readonly down: readonly Flow[];
  readonly up: readonly Flow[];
  readonly pings: readonly Pinger[];
  readonly dialling: readonly Dialler[];
}

async function startHealthy(bench: Bench): Promise<Healthy> {
  return {
    down: await bench.startFlows(1, false),
    up: await bench.startFlows(1, true),
    pings: await bench.startPings(1),
    dialling: Array.from({ length: HEALTHY_DIALS }, () => new Dialler(bench.tunnels)),
  };
}

async function measure(bench: Bench, { down, up, pings, dialling }: Healthy, ms: number, prefix: string) {
  const [downBefore, upBefore] = [await bench.look(down), await bench.look(up, true)];
  const [pinging, dials] = [beginPhase(pings), beginPhase(dialling)];
  await pause(ms);
  pinging.end(pings);
  dials.end(dialling);
  return {
    [`${prefix}down_gb_per_s`]: flowFigures(downBefore, await bench.look(down)).figures.gb_per_s ?? 0,
    [`${prefix}up_gb_per_s`]: flowFigures(upBefore, await bench.look(up, true)).figures.gb_per_s ?? 0,
    ...pingFigures(pinging, `${prefix}ping_`),
    ...dialFigures(dials, prefix),
  };
}

/** Stalls tunnels, whose callers do not read or (up) whose destinations do not, and measures the effect on others. */
export async function stall(bench: Bench, up: boolean): Promise<Figures> {
  const { conns, groups, windowMs, pace } = bench.settings;
  const healthy = await startHealthy(bench);
  await pause(GET_GOING * pace);
  const before = await measure(bench, healthy, ALONE * pace, 'before_');
  const memory = usage(groups);
  const tunnels = await bench.tunnels.openMany(conns, { window: STANDING });
  const stalled = tunnels.map((tunnel) => standStill(bench, tunnel, up));
  await settled(bench, stalled, up);
  const during = await measure(bench, healthy, windowMs, '');
  const growth = differences(memory, usage(groups), '_rss_growth_mb', ({ mb }) => mb);
  const swallowed = await swallowedBytes(bench, stalled, up);
  const kernel_tcp_mb = kernelTcpBytes() / 1e6;
  await bench.control.ask({ act: 'release' });
  await closeAll(tunnels);
  await finish(bench, healthy);
  return {
    ...before,
    ...during,
    ...growth,
    stalled: tunnels.length,
    swallowed_mb: swallowed / 1e6,
    kernel_tcp_mb,
  };
}

/** Returns the memory of all TCP sockets of the machine. Beyond net.ipv4.tcp_mem the kernel lets nobody's bytes through. */
function kernelTcpBytes(): number {
  const [, pages] = /^TCP:.* mem (\d+)$/m.exec(readFileSync('/proc/net/sockstat', 'latin1')) ?? [];
  return Number(pages ?? 0) * 4096;
}

function standStill(bench: Bench, tunnel: Duplex, up: boolean): Flow {
  const flow = new Flow(tunnel, bench.control.newId());
  if (up) flow.upload('stall');
  // Nobody reads this tunnel.
  else tunnel.write(header('source', flow.id));
  return flow;
}

async function settled(bench: Bench, flows: readonly Flow[], up: boolean): Promise<void> {
  const { pace } = bench.settings;
  await pause(SETTLE * pace);
  const late = performance.now() + SETTLED_WITHIN * pace;
  for (let before = -1; performance.now() < late; ) {
    const now = await swallowedBytes(bench, flows, up);
    if (now - before <= now * STILL) return;
    before = now;
    await pause(LOOK_EVERY * pace);
  }
}

/** Returns what the way took in although nobody read at its end, socket buffers included. */
async function swallowedBytes({ control }: Bench, flows: readonly Flow[], up: boolean): Promise<number> {
  let sum = 0;
  for (const flow of flows) sum += up ? flow.bytes : (await control.ask({ id: flow.id })).bytes;
  return sum;
}

async function finish(bench: Bench, { down, up, pings, dialling }: Healthy): Promise<void> {
  await Promise.all([stopAll([...pings, ...dialling]), bench.finishFlows([...down, ...up])]);
}
