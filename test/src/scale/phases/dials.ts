import { setTimeout as sleep } from 'node:timers/promises';
import { dialAsFast, SteadyDials } from '../dials.ts';
import { check, type Findings, millis, whole } from '../findings.ts';
import type { Stage } from '../stage.ts';
import type { Phase, Sizes } from './phase.ts';

/** Enough to keep two processors busy. */
const CALLERS = 16;

/** A rate that is easy for the plane, so that latency does not include a queue. */
const STEADY = 100;

/** How much longer it lasts than each other measurement: of many sessions, rest costs several times what these dials do. */
const STEADY_TIMES = 3;

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
  const { dial } = stage;
  // Agents that move to other hubs cost handshakes.
  await stage.fleet.settled();
  // The first dials of a process are slow: code is compiled meanwhile. There are as many with few agents, who take them faster.
  const first = await dialAsFast(dial, CALLERS, ({ tried }) => tried >= firstDials);
  const end = performance.now() + dialMs;
  const load = await usage(stage, () => dialAsFast(dial, CALLERS, () => performance.now() >= end));
  const rest = () => usage(stage, () => sleep(dialMs));
  const before = await rest();
  const steady = await usage(stage, async () => {
    const dials = new SteadyDials(dial, STEADY);
    await sleep(STEADY_TIMES * dialMs);
    return dials.stop();
  });
  const after = await rest();
  const { result: fast } = load;
  const { result: calm } = steady;
  // Without what sessions cost at rest. They cost more while the processors are full, so there is nothing to subtract from dials as fast as can be.
  const atRest = (before.cpu + after.cpu) / (before.ms + after.ms);
  const cpu = (steady.cpu - atRest * steady.ms) / calm.tried;
  const failed = [first, fast, calm].flatMap(({ failures }) => failures);
  const row = [
    whole(agents),
    whole(fast.tried / (load.ms / 1000)),
    millis(load.cpu / fast.tried),
    millis(cpu),
    millis(calm.quantile(0.5)),
    millis(calm.quantile(0.99)),
    whole(failed.length),
  ];
  return {
    tables: [{ title: TITLE, columns: COLUMNS, rows: [row] }],
    checks: [
      check(
        `no dial fails with ${agents} agents`,
        failed.length === 0,
        new Set(failed).size > 0 ? [...new Set(failed)].join('; ') : 0,
      ),
    ],
    dialCpu: new Map([[agents, cpu]]),
  };
}

/** Returns what the plane's processes used while `act` ran, and how long it ran, in milliseconds. */
async function usage<T>(stage: Stage, act: () => Promise<T>) {
  const [start, before] = [performance.now(), stage.cpu()];
  const result = await act();
  const after = stage.cpu();
  const cpu = after.hubs + after.gateways - before.hubs - before.gateways;
  return { result, ms: performance.now() - start, cpu };
}
