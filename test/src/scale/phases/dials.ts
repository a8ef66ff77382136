import { type Callers, dialAsFast, SteadyDials } from '../dials.ts';
import { check, type Findings, millis, whole } from '../findings.ts';
import type { Stage } from '../stage.ts';
import { cpuMs } from '../usage.ts';
import type { PlanePhase, Sizes } from './phase.ts';

/** Enough to keep two processors busy. */
const CALLERS = 16;

/** A rate that is easy for the plane, so that latency does not include a queue. */
const STEADY = 100;

const TITLE = 'Dials';
const COLUMNS = ['agents', 'dials/s', 'CPU of the plane a dial', `p50 at ${STEADY}/s`, `p99 at ${STEADY}/s`, 'failed'];

/** Measures the same load with more and more agents. */
export const dials: readonly PlanePhase[] = (['few', 'some', 'all'] as const).map((size) => ({
  name: `dials-${size}`,
  what: `dials a second, and their latency, with ${size === 'all' ? 'all' : size === 'few' ? 'few' : 'a fifth of the'} agents`,
  agents: (sizes) => sizes[size],
  run: (stage, sizes) => measure(stage, sizes, sizes[size]),
}));

async function measure(stage: Stage, { dialMs }: Sizes, agents: number): Promise<Findings> {
  const callers: Callers = { gateways: stage.gateways.map(({ uds }) => uds), target: stage.target };
  // Leave out what sessions cost at rest.
  const rest = await usage(stage, () => new Promise((resolve) => setTimeout(resolve, dialMs / 2)));
  // The first dials of a process are slow: code is compiled meanwhile.
  await dialAsFast(callers, CALLERS, dialMs / 2);
  const load = await usage(stage, () => dialAsFast(callers, CALLERS, dialMs));
  const fast = load.result;
  const perSecond = fast.tried / (load.ms / 1000);
  const cpu = (load.cpu - (rest.cpu / rest.ms) * load.ms) / fast.tried;
  const steady = new SteadyDials(callers, STEADY);
  await new Promise((resolve) => setTimeout(resolve, dialMs));
  const calm = await steady.stop();
  const failed = [...fast.failures, ...calm.failures];
  const row = [
    whole(agents),
    whole(perSecond),
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
    facts: { dialCpu: new Map([[agents, cpu]]) },
  };
}

/** Returns what the plane's processes used while `act` ran, and how long it ran, in milliseconds. */
async function usage<T>({ pids }: Stage, act: () => Promise<T>) {
  const [start, before] = [performance.now(), cpuMs(pids)];
  const result = await act();
  return { result, ms: performance.now() - start, cpu: cpuMs(pids) - before };
}
