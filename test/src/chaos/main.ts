// npm run chaos: injects one fault at a time into real processes under load.
import { parseArgs } from 'node:util';
import { runApart, writeOutcome } from './apart.ts';
import { table, writePage } from './report.ts';
import type { Row } from './row.ts';
import { EACH_KIND, ROWS } from './rows/index.ts';
import { DIALS_PER_SECOND, type Outcome, runRow } from './run-row.ts';

const USAGE = `npm run chaos [-- OPTIONS]
  --list         the rows, and what must hold in each
  --row NAME     only this row; may be repeated
  --each-kind    one row of each kind of fault
  --part N/M     of M runs side by side, the rows of the Nth
  --short        short phases; judges counts, not times
  --rate N       dials a second (default ${DIALS_PER_SECOND}), for a machine that has other work
A long run of all rows with the default rate writes its table into docs/RELIABILITY.md.
`;

const { values } = parseArgs({
  options: {
    short: { type: 'boolean', default: false },
    row: { type: 'string', multiple: true, default: [] },
    'each-kind': { type: 'boolean', default: false },
    list: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
    part: { type: 'string', default: '1/1' },
    // Runs one row here and writes its outcome to a file: for a row that runs in its own network.
    outcome: { type: 'string' },
    rate: { type: 'string', default: String(DIALS_PER_SECOND) },
  },
});

const ended = new AbortController();

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

function chosen(names: readonly string[]): readonly Row[] {
  const unknown = names.filter((name) => !ROWS.some((row) => row.name === name));
  if (unknown.length > 0) throw new Error(`unknown rows: ${unknown.join(', ')}; --list shows all`);
  const rows = names.length === 0 ? ROWS : ROWS.filter(({ name }) => names.includes(name));
  const [, part, parts] = /^([1-9])\/([1-9])$/.exec(values.part)?.map(Number) ?? [];
  if (!part || !parts || part > parts) throw new Error(`--part=${values.part} is not like 1/2`);
  return rows.filter((_, index) => index % parts === part - 1);
}

function tell({ row, skipped, problems, before, loadCpu, seconds }: Outcome): void {
  if (skipped) {
    say(`skipped ${row.name}: ${skipped}`);
    return;
  }
  const load = `p99 before ${before.toFixed(1)} ms; ${loadCpu.toFixed(2)} cores for the callers`;
  say(`${problems.length === 0 ? 'ok     ' : 'FAILED '} ${row.name} (${seconds.toFixed(1)} s): ${load}`);
  for (const problem of problems) say(`        ${problem}`);
}

async function main(): Promise<void> {
  if (values.help) return say(USAGE);
  if (values.list) {
    for (const { name, fault, holds } of ROWS) say(`${name.padEnd(24)}${fault}: ${holds}`);
    return;
  }
  const rate = Number(values.rate);
  const outcomes: Outcome[] = [];
  for (const row of chosen(values['each-kind'] ? [...EACH_KIND, ...values.row] : values.row)) {
    const run = row.apart && values.outcome === undefined && !row.skip?.() ? runApart : runRow;
    const outcome = await run(row, { short: values.short, rate, signal: ended.signal });
    if (ended.signal.aborted) return;
    if (values.outcome !== undefined) return writeOutcome(values.outcome, outcome);
    tell(outcome);
    outcomes.push(outcome);
  }
  say(`\n${table(outcomes, true)}\n`);
  const whole = !values.short && rate === DIALS_PER_SECOND && outcomes.length === ROWS.length;
  if (whole) writePage(outcomes);
  const ran = outcomes.filter(({ skipped }) => !skipped);
  const failed = ran.filter(({ problems }) => problems.length > 0).length;
  const skipped = outcomes.length - ran.length;
  say(`${ran.length - failed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`);
  process.exitCode = failed > 0 ? 1 : 0;
}

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => {
    process.exitCode = 130;
    ended.abort();
  });
}
await main();
