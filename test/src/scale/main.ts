// npm run scale: measures how the plane copes with thousands of agents. Prints tables, and every check that fails.
import { parseArgs } from 'node:util';
import { redisMissing } from '@isthmus/directory/testing/servers';
import { check, type Findings } from './findings.ts';
import { dials } from './phases/dials.ts';
import { known, memory } from './phases/growth.ts';
import { death, herd } from './phases/losses.ts';
import type { Phase, Sizes } from './phases/phase.ts';
import { rest } from './phases/rest.ts';
import { print, write } from './report.ts';
import { type Stage, stage } from './stage.ts';
import { tenantsRun } from './tenants/index.ts';

const [few, some, all] = dials as [Phase, Phase, Phase];

/** Ordered so that the fleet only grows for as long as possible. */
const PHASES: readonly Phase[] = [few, some, herd, known, memory, rest, all, death];

const AGENTS = 5000;
const SHORT_AGENTS = 300;

/** `rebalanceMs` is the default of the agents' flag, or shorter in a short run. */
const LONG = { firstDials: 12_000, dialMs: 10_000, restMs: 30_000, rebalanceMs: 30_000 };
const SHORT = { firstDials: 500, dialMs: 1500, restMs: 3000, rebalanceMs: 2000 };

/**
 * A whole run for tenants. `dialMs` is how long callers dial, `restMs` how long nobody does: hubs renew what agents know of them once in 20 s.
 */
const TENANTS = 4000;
const LONG_TENANTS = { dialMs: 20_000, restMs: 20_000 };
const SHORT_TENANTS = { dialMs: 2000, restMs: 3000 };

const USAGE = `npm run scale [-- OPTIONS]
  --agents N     number of simulated agents (default ${AGENTS})
  --short        ${SHORT_AGENTS} agents and short measurements, in less than a minute; judges counts, not times
  --phase NAME   only this phase; may be repeated
  --tenants N    another run: a plane for so many tenants, with two agents each
A run without options writes its figures into docs/LIMITS.md, one with --tenants ${TENANTS} into docs/TENANTS.md. Phases:
${PHASES.map(({ name, what }) => `  ${name.padEnd(14)} ${what}`).join('\n')}
`;

interface Run {
  /** Unset: the phases run. */
  readonly tenants?: number;
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
      tenants: { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  });
  const { short, phase: names, help } = values;
  const tenants = values.tenants === undefined ? undefined : Number(values.tenants);
  const agents = Number(values.agents ?? (short ? SHORT_AGENTS : AGENTS));
  const unknown = names?.filter((name) => !PHASES.some((phase) => phase.name === name)) ?? [];
  if (help || !Number.isInteger(agents) || agents < 10 || unknown.length > 0) return undefined;
  // Twenty tenants have callers.
  if (tenants !== undefined && !(Number.isInteger(tenants) && tenants >= 20)) return undefined;
  return {
    ...(tenants !== undefined && { tenants }),
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

async function measured({ sizes, phases }: Run): Promise<Findings[]> {
  const findings: Findings[] = [];
  const plane = new CurrentPlane();
  try {
    for (const phase of phases) {
      const start = performance.now();
      process.stderr.write(`${phase.name}: ${phase.what} ... `);
      findings.push(await outcome(phase, () => plane.run(phase, sizes)));
      process.stderr.write(`${((performance.now() - start) / 1000).toFixed(1)} s\n`);
    }
  } finally {
    await plane.end();
  }
  return findings;
}

/** A phase that does not end takes no other's figures with it. */
async function outcome({ name, what }: Phase, run: () => Promise<Findings>): Promise<Findings> {
  try {
    return await run();
  } catch (error) {
    process.stderr.write(`${(error as Error).stack}\n`);
    return { tables: [], checks: [check(`${name}: ${what}`, false, (error as Error).message)] };
  }
}

/** The plane that phases share, as long as it fits the next phase. */
class CurrentPlane {
  #stage: Stage | undefined;
  #spoilt = false;

  async run(phase: Phase, sizes: Sizes): Promise<Findings> {
    const agents = phase.agents(sizes);
    if (this.#spoilt || (this.#stage && this.#stage.fleet.size > agents)) await this.end();
    this.#stage ??= await stage(sizes.rebalanceMs);
    this.#spoilt = true;
    if (agents > 0) await this.#stage.populate(agents);
    const found = await phase.run(this.#stage, sizes);
    this.#spoilt = phase.spoils ?? false;
    return found;
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
  const held = wanted.tenants === undefined ? await runPhases(wanted) : await runTenants(wanted.tenants, wanted.short);
  process.exitCode = held ? 0 : 1;
}

async function runPhases(run: Run): Promise<boolean> {
  const findings = await measured(run);
  if (run.whole) write(findings);
  return print(findings, run.short, out);
}

async function runTenants(tenants: number, short: boolean): Promise<boolean> {
  const log = (text: string) => void process.stderr.write(text);
  const findings = await tenantsRun({ tenants, ...(short ? SHORT_TENANTS : LONG_TENANTS) }, log);
  if (!short && tenants === TENANTS) write([findings], 'docs/TENANTS.md', `npm run scale -- --tenants ${TENANTS}`);
  return print([findings], short, out);
}

function out(text: string): void {
  process.stdout.write(text);
}
