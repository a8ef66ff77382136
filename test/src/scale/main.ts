// npm run scale: measures how the plane copes with thousands of agents. Prints tables, and every check that fails.
import { parseArgs } from 'node:util';
import { redisMissing } from '@isthmus/registry/testing';
import type { Findings } from './findings.ts';
import { PHASES, type Phase, type Sizes } from './phases/index.ts';
import { print, write } from './report.ts';
import { type Stage, stage } from './stage.ts';

const AGENTS = 5000;
const SHORT_AGENTS = 300;

/** `rebalanceMs` is the default of the agents' flag, or shorter in a short run. */
const LONG = { dialMs: 10_000, restMs: 30_000, rebalanceMs: 30_000 };
const SHORT = { dialMs: 1500, restMs: 3000, rebalanceMs: 2000 };

const USAGE = `npm run scale [-- OPTIONS]
  --agents N     number of simulated agents (default ${AGENTS})
  --short        ${SHORT_AGENTS} agents and short measurements, in less than a minute; judges counts, not times
  --phase NAME   only this phase; may be repeated
A run without options writes its figures into docs/LIMITS.md. Phases:
${PHASES.map(({ name, what }) => `  ${name.padEnd(14)} ${what}`).join('\n')}
`;

interface Run {
  readonly sizes: Sizes;
  readonly phases: readonly Phase[];
  readonly short: boolean;
  /** Whether its figures go into the documentation. */
  readonly whole: boolean;
}

function readRun(): Run | undefined {
  const { values } = parseArgs({
    options: {
      agents: { type: 'string' },
      short: { type: 'boolean', default: false },
      phase: { type: 'string', multiple: true },
      help: { type: 'boolean', default: false },
    },
  });
  const { short, phase: names, help } = values;
  const agents = Number(values.agents ?? (short ? SHORT_AGENTS : AGENTS));
  const unknown = names?.filter((name) => !PHASES.some((phase) => phase.name === name)) ?? [];
  if (help || !Number.isInteger(agents) || agents < 10 || unknown.length > 0) return undefined;
  return {
    sizes: sizesOf(agents, short),
    short,
    phases: names ? PHASES.filter(({ name }) => names.includes(name)) : PHASES,
    whole: !short && !names && agents === AGENTS,
  };
}

/** Two thirds of the herd lose a session: 2,000 of 3,000 in a whole run. */
function sizesOf(all: number, short: boolean): Sizes {
  const sizes = { few: 10, some: Math.ceil(all / 5), herd: Math.ceil(all * 0.6), all };
  return { ...sizes, ...(short ? SHORT : LONG) };
}

async function run({ sizes, phases }: Run): Promise<Findings[]> {
  const findings: Findings[] = [];
  const plane = new CurrentPlane();
  try {
    for (const phase of phases) {
      const start = performance.now();
      process.stderr.write(`${phase.name}: ${phase.what} ... `);
      findings.push(await plane.run(phase, sizes));
      process.stderr.write(`${((performance.now() - start) / 1000).toFixed(1)} s\n`);
    }
  } finally {
    await plane.end();
  }
  return findings;
}

/** The plane that phases share, as long as it fits the next phase. */
class CurrentPlane {
  #stage: Stage | undefined;
  #spoilt = false;

  async run(phase: Phase, sizes: Sizes): Promise<Findings> {
    if ('alone' in phase) {
      await this.end();
      return phase.alone();
    }
    const agents = phase.agents(sizes);
    if (this.#spoilt || (this.#stage && this.#stage.fleet.size > agents)) await this.end();
    this.#stage ??= await stage(sizes.rebalanceMs);
    if (agents > 0) await this.#stage.populate(agents);
    this.#spoilt = phase.spoils ?? false;
    return phase.run(this.#stage, sizes);
  }

  async end(): Promise<void> {
    await this.#stage?.[Symbol.asyncDispose]();
    this.#stage = undefined;
    this.#spoilt = false;
  }
}

const wanted = readRun();
const missing = redisMissing();
if (!wanted || missing) {
  process.stderr.write(wanted ? `${missing}\n` : USAGE);
  process.exitCode = 2;
} else {
  const findings = await run(wanted);
  const held = print(findings, wanted.short, (text) => process.stdout.write(text));
  if (wanted.whole) write(findings);
  process.exitCode = held ? 0 : 1;
}
