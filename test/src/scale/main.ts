// npm run scale: how the plane bears thousands of agents, as tables, and what does not hold.
import { parseArgs } from 'node:util';
import { redisMissing } from '@isthmus/registry/testing';
import type { Findings } from './findings.ts';
import { PHASES, type Phase, type Sizes } from './phases/index.ts';
import { print, write } from './report.ts';
import { type Stage, stage } from './stage.ts';

const AGENTS = 5000;
const SHORT_AGENTS = 300;

const USAGE = `npm run scale [-- OPTIONS]
  --agents N     agents of the whole fleet (default ${AGENTS})
  --short        ${SHORT_AGENTS} agents and short measurements, in less than a minute
  --phase NAME   this phase alone; may be given several times
A run without options writes its figures into docs/LIMITS.md. Phases:
${PHASES.map(({ name, what }) => `  ${name.padEnd(14)} ${what}`).join('\n')}
`;

interface Run {
  readonly sizes: Sizes;
  readonly phases: readonly Phase[];
  /** Whether its figures are those of the documentation. */
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
    phases: names ? PHASES.filter(({ name }) => names.includes(name)) : PHASES,
    whole: !short && !names && agents === AGENTS,
  };
}

/** Of the herd two thirds lose a session: 2,000 of 3,000 in a whole run. */
function sizesOf(all: number, short: boolean): Sizes {
  const sizes = { few: 10, some: Math.ceil(all / 5), herd: Math.ceil(all * 0.6), all };
  return { ...sizes, ...(short ? { dialMs: 2000, restMs: 3000 } : { dialMs: 10_000, restMs: 30_000 }) };
}

async function run({ sizes, phases }: Run): Promise<Findings[]> {
  const findings: Findings[] = [];
  let current: { readonly stage: Stage; spoilt: boolean } | undefined;
  try {
    for (const phase of phases) {
      const agents = phase.agents(sizes);
      if (current && (current.spoilt || current.stage.fleet.size > agents)) {
        await current.stage[Symbol.asyncDispose]();
        current = undefined;
      }
      current ??= { stage: await stage(), spoilt: false };
      if (agents > 0) await current.stage.populate(agents);
      process.stderr.write(`${phase.name}: ${phase.what} ... `);
      const start = performance.now();
      findings.push(await phase.run(current.stage, sizes));
      process.stderr.write(`${((performance.now() - start) / 1000).toFixed(1)} s\n`);
      current.spoilt = phase.spoils ?? false;
    }
  } finally {
    await current?.stage[Symbol.asyncDispose]();
  }
  return findings;
}

const wanted = readRun();
const missing = redisMissing();
if (!wanted || missing) {
  process.stderr.write(wanted ? `${missing}\n` : USAGE);
  process.exitCode = 2;
} else {
  const findings = await run(wanted);
  const held = print(findings, (text) => process.stdout.write(text));
  if (wanted.whole) write(findings);
  process.exitCode = held ? 0 : 1;
}
