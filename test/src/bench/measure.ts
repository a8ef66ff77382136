import { ask } from '../rig/child.ts';
import { derived } from '../rig/figures.ts';
import type { Figures, Load, Result } from '../rig/load/messages.ts';
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

/** Dials run more code than any other work: V8 compiles until ten thousand have been made. */
function warmUp(pace: Pace, work: Line['work']): Pace {
  return { ...pace, windowMs: (work === 'dials' ? 6 : 2) * pace.windowMs };
}

/** Measures one line on one contender, once. */
export async function measure(
  line: Line,
  contender: Contender,
  planes: Planes,
  destinationPort: number,
  pace: Pace,
): Promise<Result> {
  try {
    await using own = new Planes(destinationPort);
    const started = await (line.fresh ? own : planes).of(contender, line);
    const { first: _, ...unpaced } = { ...line, rate: 0 };
    if (planes.isCold(contender, line))
      await load(unpaced, contender, started, destinationPort, warmUp(pace, line.work));
    return await load(line, contender, started, destinationPort, pace);
  } catch (error) {
    return { figures: {}, errors: { [(error as Error).message]: 1 } };
  }
}

async function load(
  { work, path, conns, rate, first }: Line,
  contender: Contender,
  started: Started,
  benchPort: number,
  { windowMs, pace }: Pace,
): Promise<Result> {
  const { groups, destination } = started;
  const common = {
    fronts: [frontOf(contender, started)],
    destinationPort: destination?.port ?? benchPort,
    conns,
    windowMs,
  };
  if (work === 'path') {
    const load = { load: 'path', ...common, small: path?.small ?? 0 } satisfies Load;
    return await ask<Result>('rig/load/main.ts', load, windowMs + GRACE);
  }
  const settings = { ...common, work, pace, rate, groups, ...(first !== undefined && { first }) };
  const { figures, errors } = contender.planebench
    ? await planebench(contender.planebench, settings)
    : await ask<Result>('rig/load/main.ts', { load: 'work', ...settings } satisfies Load, windowMs + GRACE);
  return { figures: rounded(derived(figures, Object.keys(groups))), errors };
}

/** Rounds to five digits: the rest is noise. */
function rounded(figures: Figures): Figures {
  return Object.fromEntries(Object.entries(figures).map(([name, value]) => [name, Number(value.toPrecision(5))]));
}
