// npm run scale: measures how the plane copes with thousands of agents. Prints tables, and every check that fails.
import { redisMissing } from '@isthmus/directory/testing/servers';
import { Scope } from '../harness/scope.ts';
import { chosen, commandLine, conclude, misused, NAMES } from '../rig/command.ts';
import { check, type Findings } from './findings.ts';
import { dials } from './phases/dials.ts';
import { known, memory } from './phases/growth.ts';
import { death, herd } from './phases/losses.ts';
import type { Phase, Sizes } from './phases/phase.ts';
import { rest } from './phases/rest.ts';
import { print, timed, write } from './report.ts';
import { Stage } from './stage.ts';
import { tenantsRun } from './tenants/index.ts';

const [few, some, all] = dials as [Phase, Phase, Phase];

/** Ordered so that the fleet only grows for as long as possible. */
const PHASES: readonly Phase[] = [few, some, herd, known, memory, rest, all, death];

const HUBS = 3;
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

const { values } = commandLine(
  'scale',
  {
    agents: { type: 'string', value: 'N', says: `number of simulated agents (default ${AGENTS})` },
    short: {
      type: 'boolean',
      default: false,
      says: `${SHORT_AGENTS} agents and short measurements, in less than a minute; judges counts, not times`,
    },
    phase: { ...NAMES, says: 'only this phase; may be repeated' },
    tenants: { type: 'string', value: 'N', says: 'another run: a plane for so many tenants, with two agents each' },
  },
  `A run without options writes its figures into docs/LIMITS.md, one with --tenants ${TENANTS} into docs/TENANTS.md. Phases:
${PHASES.map(({ name, what }) => `  ${name.padEnd(14)} ${what}`).join('\n')}`,
);
const { short } = values;

/** @returns a number that is given, or else `or` */
function numberOf(name: 'agents' | 'tenants', least: number, or: number): number {
  const number = Number(values[name] ?? or);
  if (!Number.isInteger(number) || number < least) misused(`--${name} needs a number from ${least}.`);
  return number;
}

/** Two thirds of the herd lose a session: 2,000 of 3,000 in a whole run. */
function sizesOf(all: number): Sizes {
  const sizes = { few: 10, some: Math.ceil(all / 5), herd: Math.ceil(all * 0.6), all };
  return { ...sizes, ...(short ? SHORT : LONG) };
}

async function measured(sizes: Sizes, phases: readonly Phase[]): Promise<Findings[]> {
  const findings: Findings[] = [];
  const plane = new CurrentPlane();
  try {
    for (const phase of phases) {
      const run = () => outcome(phase, () => plane.run(phase, sizes));
      findings.push(await timed(`${phase.name}: ${phase.what}`, run));
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
  #scope = new Scope();
  #stage: Stage | undefined;
  #spoilt = false;

  async run(phase: Phase, sizes: Sizes): Promise<Findings> {
    const agents = phase.agents(sizes);
    if (this.#spoilt || (this.#stage && this.#stage.fleet.size > agents)) await this.end();
    this.#spoilt = true;
    this.#stage ??= await Stage.start(this.#scope, { hubs: HUBS, rebalanceTime: sizes.rebalanceMs });
    if (agents > 0) await this.#stage.populate(agents);
    const found = await phase.run(this.#stage, sizes);
    this.#spoilt = phase.spoils ?? false;
    return found;
  }

  async end(): Promise<void> {
    await this.#scope[Symbol.asyncDispose]();
    this.#scope = new Scope();
    this.#stage = undefined;
    this.#spoilt = false;
  }
}

async function runPhases(): Promise<void> {
  const agents = numberOf('agents', 10, short ? SHORT_AGENTS : AGENTS);
  const phases = chosen(PHASES, values.phase);
  const findings = await measured(sizesOf(agents), phases);
  if (!short && phases === PHASES && agents === AGENTS) write(findings);
  conclude(...print(findings, short));
}

async function runTenants(): Promise<void> {
  // Twenty tenants have callers.
  const tenants = numberOf('tenants', 20, TENANTS);
  const findings = await tenantsRun({ tenants, ...(short ? SHORT_TENANTS : LONG_TENANTS) });
  if (!short && tenants === TENANTS) write([findings], 'docs/TENANTS.md', `npm run scale -- --tenants ${TENANTS}`);
  conclude(...print([findings], short));
}

const missing = redisMissing();
if (missing) {
  process.stderr.write(`${missing}\n`);
  process.exitCode = 2;
} else await (values.tenants === undefined ? runPhases() : runTenants());
