// npm run bench: measures what a plane carries and what it costs, compared to relays and to no plane at all, in one run.
import { execFileSync } from 'node:child_process';
import { parseArgs } from 'node:util';
import { aligned } from '../rig/figures.ts';
import { pathsMissing, runApart } from '../rig/network.ts';
import { LINES } from './lines.ts';
import { measureOneAddress } from './one-address.ts';
import type { PathSettings } from './paths/cases.ts';
import { type Plan, runAll } from './run.ts';
import { type Book, busyNow, madeHere, readBook, writeBook } from './store.ts';
import { comparison, figureTable, writePage } from './tables.ts';

const SECONDS = 3;
/** Long enough to see that a work runs, too short for a figure. */
const SHORT = { windowMs: 200, pace: 0.1 };

const USAGE = `npm run bench [-- OPTIONS]
  --line NAME          only this line, or the lines whose names begin with NAME; may be repeated
  --front NAME         only this column; may be repeated
  --repeat N           measure N rounds and show their medians (default 1)
  --seconds N          length of each measurement (default ${SECONDS})
  --json FILE          write all figures to FILE
  --short              check that everything runs, and measure nothing
  --planebench PATH    also load the planes with this program
  --anp-server PATH --anp-agent PATH   also measure upstream's pair
  --node PATH          also run our programs on this Node
  --paths              instead of lines, measure paths that are long, lossy or thin; needs root and Go
  --path NAME          only these paths, such as 300ms or 1mbit; may be repeated
  --tcp NAME           TCP's congestion control on them (default: the machine's)
  --one-address        instead of lines, measure clients that reach their API server by name through a hub
  --haproxy PATH       beside this HAProxy
  --idle N             and the memory of so many silent ones
  --compare A B        compare the JSON files of two runs
  --page FILE...       write JSON files of runs into docs/PERFORMANCE.md: ratios to ANP as ranges
                       over all runs; of other figures the last run's that has the line
Lines:
${LINES.map(({ name, title }) => `  ${name.padEnd(24)} ${title}`).join('\n')}
`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    line: { type: 'string', multiple: true, default: [] },
    front: { type: 'string', multiple: true, default: [] },
    repeat: { type: 'string', default: '1' },
    seconds: { type: 'string', default: String(SECONDS) },
    json: { type: 'string' },
    short: { type: 'boolean', default: false },
    planebench: { type: 'string' },
    'anp-server': { type: 'string' },
    'anp-agent': { type: 'string' },
    node: { type: 'string' },
    paths: { type: 'boolean', default: false },
    path: { type: 'string', multiple: true, default: [] },
    tcp: { type: 'string' },
    'one-address': { type: 'boolean', default: false },
    haproxy: { type: 'string' },
    idle: { type: 'string', default: '0' },
    compare: { type: 'boolean', default: false },
    page: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

function plan(): Plan | undefined {
  const { line, front, short, planebench } = values;
  const [rounds, seconds] = [Number(values.repeat), Number(values.seconds)];
  const unknown = line.filter((name) => !LINES.some((each) => each.name.startsWith(name)));
  if (unknown.length > 0 || !(Number.isInteger(rounds) && rounds > 0) || !(seconds > 0)) return undefined;
  const [server, agent] = [values['anp-server'], values['anp-agent']];
  return {
    rounds,
    short,
    fronts: front,
    ...(short ? SHORT : { windowMs: seconds * 1000, pace: 1 }),
    lines: LINES.filter(({ name }) => line.length === 0 || line.some((each) => isMeant(each, name))),
    ...(planebench !== undefined && { planebench }),
    ...(values.node !== undefined && { node: { path: values.node, version: versionOf(values.node) } }),
    ...(server !== undefined && agent !== undefined && { anp: { server, agent } }),
  };
}

/** Paths have figures of their own, which are not compared line by line. */
async function measurePaths({ windowMs, anp }: Plan): Promise<void> {
  const ended = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => ended.abort());
  const missing = pathsMissing();
  if (missing) throw new Error(missing);
  const own = { ...(anp && { anp }), ...(values.tcp && { tcp: values.tcp }) };
  const settings: PathSettings = { cases: values.path, windowMs, ...own };
  if ((await runApart('bench/paths/main.ts', [JSON.stringify(settings)], ended)) !== 0) process.exitCode = 1;
}

/** @returns the major version of a Node */
function versionOf(node: string): string {
  return execFileSync(node, ['-p', 'process.versions.node.split(".")[0]'], { encoding: 'utf8' }).trim();
}

/** A line's full name selects only that line. */
function isMeant(given: string, name: string): boolean {
  return LINES.some((each) => each.name === given) ? name === given : name.startsWith(given);
}

async function run(plan: Plan): Promise<void> {
  const ended = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => ended.abort());
  const busy = await busyNow();
  const { runs, failed } = await runAll(plan, say, ended.signal);
  const book: Book = { made: madeHere(plan.windowMs, plan.rounds, busy), runs };
  if (values.json) writeBook(values.json, book);
  if (!plan.short) say(`\n${aligned(figureTable(book, plan.lines))}\n`);
  say(`${runs.length - failed} passed, ${failed} failed`);
  process.exitCode = failed > 0 || runs.length === 0 ? 1 : 0;
}

const [before, after] = positionals;
const wanted = plan();
if (values.compare && before && after) say(aligned(comparison(readBook(before), readBook(after))));
else if (values.page && before) writePage([readBook(before), ...positionals.slice(1).map(readBook)]);
else if (values.help || values.compare || values.page || positionals.length > 0 || !wanted) {
  process.stderr.write(USAGE);
  process.exitCode = values.help ? 0 : 2;
} else if (values['one-address']) {
  await measureOneAddress({ windowMs: wanted.windowMs, haproxy: values.haproxy, idle: Number(values.idle) }, say);
  process.exit(0);
} else await (values.paths ? measurePaths(wanted) : run(wanted));
