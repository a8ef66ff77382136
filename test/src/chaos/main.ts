// npm run chaos: injects one fault at a time into real processes under load.
import { chosen, commandLine, conclude, interrupted, NAMES, say } from '../rig/command.ts';
import { apart } from '../rig/network.ts';
import { table, writePage } from './report.ts';
import { EACH_KIND, ROWS } from './rows/index.ts';
import { DIALS_PER_SECOND, type Outcome, runRow } from './run-row.ts';

const { values } = commandLine(
  'chaos',
  {
    list: { type: 'boolean', says: 'the rows, and what must hold in each' },
    row: { ...NAMES, says: 'only this row; may be repeated' },
    'each-kind': { type: 'boolean', says: 'one row of each kind of fault' },
    short: { type: 'boolean', default: false, says: 'short phases; judges counts, not times' },
    rate: {
      type: 'string',
      default: `${DIALS_PER_SECOND}`,
      value: 'N',
      says: `dials a second (default ${DIALS_PER_SECOND}), for a machine that has other work`,
    },
  },
  'A long run of all rows with the default rate writes its table into docs/RELIABILITY.md.',
);

/**
 * How many bytes one TCP socket may hold in each direction: least, at first, most. A machine allows 4 and 32 MB by default. With
 * these, the sockets of a thousand stalled connections take all memory that the kernel has for TCP, and then no socket of the
 * machine moves data, whichever program relays.
 */
const SOCKET_BUFFERS = ['tcp_rmem', 'tcp_wmem'].map((name) => `net.ipv4.${name}=4096 131072 524288`);

const rate = Number(values.rate);
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
  const signal = interrupted();
  const outcomes: Outcome[] = [];
  for (const row of chosen(ROWS, values['each-kind'] ? [...EACH_KIND, ...values.row] : values.row)) {
    const outcome = await runRow(row, { short: values.short, rate, signal });
    if (signal.aborted) return;
    tell(outcome);
    outcomes.push(outcome);
  }
  say(`\n${table(outcomes, true)}\n`);
  const whole = !values.short && rate === DIALS_PER_SECOND && outcomes.length === ROWS.length;
  if (whole) writePage(outcomes);
  const ran = outcomes.filter(({ skipped }) => !skipped);
  const failed = ran.filter(({ problems }) => problems.length > 0).length;
  conclude(ran.length - failed, failed, outcomes.length - ran.length);
}

if (values.list) for (const { name, fault, holds } of ROWS) say(`${name.padEnd(24)}${fault}: ${holds}`);
else if (!(await apart(import.meta.url, SOCKET_BUFFERS))) await main();
