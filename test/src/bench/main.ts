// npm run bench: measures what a plane carries and what it costs, compared to relays and to no plane at all, in one run.
import { chosen, commandLine, conclude, interrupted, misused, NAMES, say } from '../rig/command.ts';
import { aligned } from '../rig/figures.ts';
import { apart, pathsMissing } from '../rig/network.ts';
import { madeHere } from '../rig/page.ts';
import { LINES, linesByName } from './lines.ts';
import { PATHS } from './paths.ts';
import { type Plan, runAll } from './run.ts';
import { type Book, busyNow, readBook, writeBook } from './store.ts';
import { figureTable, writePage } from './tables.ts';

/** Long enough to see that a work runs, too short for a figure. */
const SHORT = { windowMs: 200, pace: 0.1 };

const path = { type: 'string', value: 'PATH' } as const;

const { values, positionals } = commandLine(
  'bench',
  {
    line: { ...NAMES, says: 'only this line, or the lines whose names begin with NAME; may be repeated' },
    front: { ...NAMES, says: 'only this column; may be repeated' },
    repeat: { type: 'string', default: '1', value: 'N', says: 'measure N rounds and show their medians (default 1)' },
    seconds: { type: 'string', default: '3', value: 'N', says: 'length of each measurement (default 3)' },
    json: { type: 'string', value: 'FILE', says: 'write all figures to FILE' },
    short: { type: 'boolean', default: false, says: 'check that everything runs, and measure nothing' },
    planebench: { ...path, says: 'also load the planes with this program' },
    'anp-server': { ...path, says: "also measure upstream's pair: its server ..." },
    'anp-agent': { ...path, says: '... and its agent' },
    paths: { type: 'boolean', says: 'instead of lines, measure paths that are long, lossy or thin; needs root and Go' },
    tcp: { type: 'string', value: 'NAME', says: "TCP's congestion control on them (default: the machine's)" },
    'one-address': {
      type: 'boolean',
      says: 'instead of lines, measure clients that reach their API server by name through a hub',
    },
    haproxy: { ...path, says: 'beside this HAProxy' },
    idle: { type: 'string', default: '0', value: 'N', says: 'and the memory of so many silent ones' },
    page: {
      type: 'boolean',
      value: 'FILE...',
      says: 'write the ratios to ANP of JSON files of runs into docs/PERFORMANCE.md, as ranges',
    },
  },
  `Lines:\n${LINES.map(({ name, title }) => `  ${name.padEnd(24)} ${title}`).join('\n')}`,
);

/** The lines to choose from. */
const ALL = values.paths ? PATHS : values['one-address'] ? linesByName(Number(values.idle)) : LINES;

function plan(): Plan {
  const { line, front, short, planebench, haproxy, tcp } = values;
  const [rounds, seconds] = [Number(values.repeat), Number(values.seconds)];
  if (!(Number.isInteger(rounds) && rounds > 0)) misused('--repeat needs a whole number.');
  if (!(seconds > 0)) misused('--seconds needs a number.');
  if (!/^\d+$/.test(values.idle)) misused('--idle needs a whole number.');
  const [server, agent] = [values['anp-server'], values['anp-agent']];
  return {
    rounds,
    short,
    haproxy,
    tcp,
    fronts: front,
    ...(short ? SHORT : { windowMs: seconds * 1000, pace: 1 }),
    lines: chosen(ALL, line, isMeant),
    ...(planebench !== undefined && { planebench }),
    ...(server !== undefined && agent !== undefined && { anp: { server, agent } }),
  };
}

/** Of those whose names begin so, a line's full name selects only that line. */
function isMeant(given: string, name: string): boolean {
  return ALL.some((each) => each.name === given) ? name === given : name.startsWith(given);
}

async function run(plan: Plan): Promise<void> {
  const signal = interrupted();
  const busy = await busyNow();
  const { runs, failed } = await runAll(plan, signal);
  const { windowMs, rounds } = plan;
  const book: Book = { made: { ...madeHere(), windowMs, rounds, busy }, runs };
  if (values.json) writeBook(values.json, book);
  if (!plan.short) say(`\n${aligned(figureTable(book, plan.lines))}\n`);
  conclude(runs.length - failed, failed);
}

if (!values.page && positionals.length > 0) misused('Only --page FILE... takes files.');
if (values.page) {
  const [first, ...others] = positionals;
  if (first === undefined) misused('--page needs a file.');
  writePage([readBook(first), ...others.map(readBook)]);
} else {
  const missing = values.paths && pathsMissing();
  if (missing) misused(missing);
  // What TCP is told for paths is nothing to others.
  if (!values.paths || !(await apart(import.meta.url))) await run(plan());
}
