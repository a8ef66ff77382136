import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { Scope } from '../harness/index.ts';
import { ask, listening } from '../rig/child.ts';
import { derived } from '../rig/figures.ts';
import {
  type Figures,
  type FloodKind,
  type FloodSettings,
  heldBy,
  type Result,
  type Settings,
} from '../rig/load/messages.ts';
import { close, oneByte, Tunnels } from '../rig/load/tunnels.ts';
import { type Contender, frontOf, Planes } from './contenders.ts';
import type { Started } from './families.ts';
import type { Line } from './lines.ts';
import { planebench } from './planebench.ts';

export interface Pace {
  /** How long a measurement takes, in milliseconds. */
  readonly windowMs: number;
  /** Factor for the usual times before and between measurements. */
  readonly pace: number;
}

/** How long a work may take besides its window, in milliseconds: 20,000 tunnels are opened and closed one after the other. */
const GRACE = 300_000;

/** How much longer a flood may take, in milliseconds: it opens thousands of tunnels, three times, and a busy plane makes it wait. */
const FLOOD_GRACE = 900_000;

/** How soon a plane must take a dial, in milliseconds; otherwise it did not start. */
const START_WITHIN = 30_000;

/** Descriptors that a process needs besides one per tunnel: its own, and its reserve. */
const OTHER_DESCRIPTORS = 300;

/** Limits a line to the number of tunnels that the processes may open. */
function within(line: Line): Line {
  return { ...line, conns: Math.min(line.conns, descriptorLimit() - OTHER_DESCRIPTORS) };
}

/** Dials run more code than any other work: V8 compiles until ten thousand have been made. */
function warmUp(pace: Pace, work: Line['work']): Pace {
  return { ...pace, windowMs: (work === 'dials' ? 6 : 2) * pace.windowMs };
}

/** The hard limit on Linux. A process may raise its own limit to this. */
function descriptorLimit(): number {
  const [, hard] = /^Max open files\s+\d+\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'latin1')) ?? [];
  return hard === undefined ? Number.POSITIVE_INFINITY : Number(hard);
}

/** Measures one line on one contender, once. Uses fewer tunnels if there are not enough descriptors for all. */
export async function measure(
  wanted: Line,
  contender: Contender,
  planes: Planes,
  destinationPort: number,
  pace: Pace,
): Promise<Result> {
  const line = within(wanted);
  try {
    if (line.work === 'start') return await firstDial(contender, destinationPort);
    await using own = new Planes(destinationPort);
    const started = await (line.fresh ? own : planes).of(contender, line.agents);
    const { first: _, ...unpaced } = { ...line, rate: 0 };
    if (planes.isCold(contender, line))
      await load(unpaced, contender, started, destinationPort, warmUp(pace, line.work));
    return await load(line, contender, started, destinationPort, pace);
  } catch (error) {
    return { figures: {}, errors: { [(error as Error).message]: 1 } };
  }
}

async function load(
  { work, conns, rate, first, flood: kind }: Line,
  contender: Contender,
  started: Started,
  destinationPort: number,
  { windowMs, pace }: Pace,
): Promise<Result> {
  if (work === 'start') throw new Error('the load cannot measure a start');
  const { groups } = started;
  const front = frontOf(contender, started);
  await using scope = new Scope();
  const flood = kind && (await floodOf(scope, kind, contender, started, conns));
  const settings: Settings = {
    front,
    destinationPort,
    work,
    conns,
    windowMs,
    pace,
    rate,
    groups,
    ...(first !== undefined && { first }),
    ...(flood && { flood }),
  };
  const deadline = windowMs + GRACE + (flood ? FLOOD_GRACE : 0);
  const { figures, errors } = contender.planebench
    ? await planebench(contender.planebench, settings)
    : await ask<Result>('bench/load/main.ts', settings, deadline);
  return { figures: rounded(derived(figures, Object.keys(groups))), errors };
}

/** The flood has a destination of its own: one that is busy with it would let the measured tenant wait. */
async function floodOf(
  scope: Scope,
  kind: FloodKind,
  contender: Contender,
  { floodDoor: door, ...started }: Started,
  most: number,
): Promise<FloodSettings | undefined> {
  if (!door) return undefined;
  const { port } = await listening(scope, 'rig/load/destination.ts');
  return { held: heldBy(kind, most), fronts: [frontOf(contender, { ...started, door })], destinationPort: port };
}

/** Rounds to five digits: the rest is noise. */
function rounded(figures: Figures): Figures {
  return Object.fromEntries(Object.entries(figures).map(([name, value]) => [name, Number(value.toPrecision(5))]));
}

/** Starts all processes together, and dials until one dial works. */
async function firstDial(contender: Contender, destinationPort: number): Promise<Result> {
  if (!contender.family) throw new Error('this contender has no processes to start');
  await using scope = new Scope();
  const start = await contender.family(scope, destinationPort);
  const from = performance.now();
  const started = await start();
  const tunnels = new Tunnels(frontOf(contender, started), destinationPort);
  while (performance.now() - from < START_WITHIN) {
    try {
      const tunnel = await tunnels.open();
      await oneByte(tunnel, 'pong');
      const first_dial_ms = performance.now() - from;
      await close(tunnel);
      return { figures: { first_dial_ms }, errors: {} };
    } catch {
      await pause(2);
    }
  }
  return { figures: {}, errors: { 'no dial worked': 1 } };
}
