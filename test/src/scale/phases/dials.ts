import { setTimeout as sleep } from 'node:timers/promises';
import type { Member } from '../../harness/member.ts';
import { ask } from '../../rig/child.ts';
import { quantile } from '../../rig/figures.ts';
import type { Load, Result } from '../../rig/load/messages.ts';
import { check, type Findings, millis, whole } from '../findings.ts';
import { type Both, DIAL_WITHIN, type Stage } from '../stage.ts';
import type { Phase, Sizes } from './phase.ts';

/** Enough to keep two processors busy. */
const CALLERS = 16;

/** A rate that is easy for the plane, so that latency does not include a queue. */
const STEADY = 100;

/** How much longer it lasts than each other measurement: of many sessions, rest costs several times what these dials do. */
const STEADY_TIMES = 3;

/** How long the first dials may take, and how long a load may take to begin and end, in milliseconds. */
const FIRST_WITHIN = 60_000;
const GRACE = 60_000;

const TITLE = 'Dials';
const COLUMNS = [
  'agents',
  'dials/s',
  'CPU of the plane a dial, with rest',
  `CPU of the plane a dial at ${STEADY}/s`,
  `p50 at ${STEADY}/s`,
  `p99 at ${STEADY}/s`,
  'failed',
];

/** Measures the same load with more and more agents. */
export const dials: readonly Phase[] = (['few', 'some', 'all'] as const).map((size) => ({
  name: `dials-${size}`,
  what: `dials a second, and their latency, with ${size === 'all' ? 'all' : size === 'few' ? 'few' : 'a fifth of the'} agents`,
  agents: (sizes) => sizes[size],
  run: (stage, sizes) => measure(stage, sizes, sizes[size]),
}));

async function measure(stage: Stage, { dialMs, firstDials }: Sizes, agents: number): Promise<Findings> {
  // Agents that move to other hubs cost handshakes.
  await stage.fleet.settled();
  // The first dials of a process are slow: code is compiled meanwhile. There are as many with few agents, who take them faster.
  const first = await asFast(stage, { windowMs: FIRST_WITHIN, first: firstDials });
  const fast = await asFast(stage, { windowMs: dialMs });
  const rest = () => stage.used(() => sleep(dialMs));
  const before = await rest();
  const steady = await stage.used(async () => {
    await using load = stage.dialling(STEADY);
    await sleep(STEADY_TIMES * dialMs);
    await load.stop();
    return load.dials;
  });
  const after = await rest();
  const { result: calm } = steady;
  // Without what sessions cost at rest. They cost more while the processors are full, so there is nothing to subtract from dials as fast as can be.
  const atRest = (sum(before.cpu) + sum(after.cpu)) / (before.ms + after.ms);
  const cpu = (sum(steady.cpu) - atRest * steady.ms) / calm.length;
  const failures = [
    ...[first, fast].flatMap(({ errors }) =>
      Object.entries(errors).flatMap(([text, count]) => Array(count).fill(text)),
    ),
    ...calm.flatMap(({ error = [] }) => error),
  ];
  const took = calm.map(({ ms }) => ms);
  const row = [
    whole(agents),
    whole(fast.figures.dials_per_s ?? 0),
    millis((fast.figures.hubs_cpu_ms_per_dial ?? 0) + (fast.figures.gateways_cpu_ms_per_dial ?? 0)),
    millis(cpu),
    millis(quantile(took, 0.5)),
    millis(quantile(took, 0.99)),
    whole(failures.length),
  ];
  return {
    tables: [{ title: TITLE, columns: COLUMNS, rows: [row] }],
    checks: [check(`no dial fails with ${agents} agents`, failures.length === 0, [...new Set(failures)].join('; '))],
    dialCpu: new Map([[agents, cpu]]),
  };
}

const sum = ({ hubs, gateways }: Both) => hubs + gateways;

/** Callers who dial again as soon as their last dial is over. */
function asFast({ doors, port, hubs, gateways }: Stage, how: { windowMs: number; first?: number }): Promise<Result> {
  const pids = (members: readonly Member[]) => members.map(({ program }) => program.pid);
  const groups = { hubs: pids(hubs), gateways: pids(gateways) };
  const load = {
    fronts: doors.map((door) => ({ kind: 'door', door, protocol: 'connect' }) as const),
    destinationPort: port,
    work: 'dials',
    conns: CALLERS,
    pace: 1,
    rate: 0,
    groups,
    within: DIAL_WITHIN,
    ...how,
  } as const;
  return ask<Result>('rig/load/main.ts', { load: 'work', ...load } satisfies Load, how.windowMs + GRACE);
}
