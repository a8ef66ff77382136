// npm run incidents: stages a fault in a plane of real processes, and says no more of it than an operator would know.
import { createInterface } from 'node:readline';
import { Scope } from '../harness/index.ts';
import { commandLine, misused, say } from '../rig/command.ts';
import { INCIDENTS } from './incidents.ts';

/** Enough that the one with a fault does not stand out. */
const AGENTS = 10;

const { values } = commandLine(
  'incidents',
  { number: { type: 'string', value: 'N', says: `which of the ${INCIDENTS.length} (default: any)` } },
  '',
);

function chosen(): (typeof INCIDENTS)[number] {
  const number = values.number ?? String(1 + Math.floor(Math.random() * INCIDENTS.length));
  const incident = INCIDENTS[Number(number) - 1];
  return incident ?? misused(`--number is ${number}: want 1 to ${INCIDENTS.length}.`);
}

/** Resolves to whether somebody wants to hear the answer. */
function asked(): Promise<boolean> {
  return new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve(false));
    const input = createInterface({ input: process.stdin });
    input.once('line', () => resolve(true));
  });
}

async function run(): Promise<void> {
  const done = asked();
  const incident = chosen();
  await using scope = new Scope();
  say('Starting a plane, and something else ...');
  const staged = await Promise.race([incident.stage(scope, AGENTS), done]);
  if (typeof staged === 'object') {
    say(`\n${staged.symptom}\n\nAdmin ports:`);
    for (const { id, program } of staged.members) say(`  ${id.padEnd(12)}127.0.0.1:${program.adminPort}`);
    const [first] = staged.members;
    say(`\n  npx isthmus status --address 127.0.0.1:${first?.program.adminPort}`);
    say(`  http://127.0.0.1:${first?.program.adminPort}/console/`);
    say('\nFind out what is wrong, and what to do. Enter says it and ends the plane; Ctrl-C just ends it.');
    if (await done) say(`\n${incident.answer}`);
  }
  process.stdin.destroy();
}

await run();
