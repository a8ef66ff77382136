import { redisMissing } from '@isthmus/directory/testing/servers';
import { Scope } from '../harness/index.ts';
import { listening } from '../rig/child.ts';
import { say } from '../rig/command.ts';
import { short } from '../rig/figures.ts';
import { type Contender, contenders, Planes, type Programs } from './contenders.ts';
import type { Line } from './lines.ts';
import { measure, type Pace } from './measure.ts';
import type { Run } from './store.ts';

export interface Plan extends Pace, Programs {
  readonly lines: readonly Line[];
  /** Columns; empty for all. */
  readonly fronts: readonly string[];
  readonly rounds: number;
  /** Fewer tunnels, and each line on one plane only, in turn. */
  readonly short: boolean;
}

/** What a run measured, and how many measurements have no figures. */
interface Runs {
  readonly runs: readonly Run[];
  readonly failed: number;
}

/** Tunnels of a short run. */
const FEW = 8;

/** Measures line by line. The contenders of a line take turns, round by round, since a machine's speed varies. */
export async function runAll(plan: Plan, signal: AbortSignal): Promise<Runs> {
  const runs: Run[] = [];
  let failed = 0;
  await using scope = new Scope();
  const { port } = await listening(scope, 'rig/load/destination.ts');
  const planes = scope.use(new Planes(port));
  for (const [index, line] of plan.lines.entries()) {
    for (let round = 0; round < (line.once ? 1 : plan.rounds); round++) {
      for (const contender of among(plan, line, index)) {
        if (signal.aborted) return { runs, failed };
        const result = await measure(plan.short ? fewer(line) : line, contender, planes, port, plan);
        const { figures, errors } = result;
        const run: Run = { line: line.name, contender: contender.name, round, figures, errors };
        runs.push(run);
        const broken = Object.keys(figures).length === 0;
        if (broken) failed++;
        say(told(line, run, broken));
      }
    }
  }
  return { runs, failed };
}

function among({ fronts, short, ...programs }: Plan, { on, first, work }: Line, index: number): Contender[] {
  const withoutRedis = redisMissing() !== false;
  const all = contenders(programs).filter(({ kind, name, planebench }) => {
    if (kind === 'split' && withoutRedis) return false;
    // Planebench measures for a time.
    if (planebench !== undefined && (first !== undefined || work === 'whole')) return false;
    return on.includes(kind) && (fronts.length === 0 || fronts.some((front) => name.startsWith(front)));
  });
  if (!short) return all;
  const planes = all.filter(({ kind }) => kind !== 'direct' && kind !== 'relays');
  const plane = planes[index % planes.length];
  return [
    ...all.filter(({ kind }) => kind === 'direct'),
    ...all.filter(({ kind }) => kind === 'relays').slice(0, 1),
    ...(plane ? [plane] : []),
  ];
}

function fewer(line: Line): Line {
  const { conns, first } = line;
  return { ...line, conns: Math.min(conns, FEW), ...(first !== undefined && { first: FEW }) };
}

function told({ title, shows }: Line, { contender, figures, errors }: Run, broken: boolean): string {
  const shown = Object.entries(shows).flatMap(([figure, label]) => {
    const value = figures[figure];
    return value === undefined ? [] : [`${short(value)} ${label}`];
  });
  const wrong = Object.entries(errors).map(([kind, count]) => `${count} × ${kind}`);
  const head = `${broken ? 'FAILED ' : ''}${title}, ${contender}`;
  return `${head}: ${[...shown, ...wrong].join('; ')}`;
}
