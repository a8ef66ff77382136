// Runs the README's commands as a newcomer would: the tests; then one fault of each kind, with short phases; and npm start in both forms, with the
// lines that it prints for pasting.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { command, seconds } from './lib/command.mjs';
import { closingLine, ONE_FAILED, ONE_PASSED, readClosingLine, succeeded, sum } from './lib/counts.mjs';
import { ROOT } from './lib/workspace.mjs';

const MINUTE = 60_000;
/** They end what hangs, and judge no speed. */
const START_MS = 5 * MINUTE;
const DIAL_MS = MINUTE;
/** Of the demo's destination. */
const ANSWER = 'Hello from the demo destination';
/** Alone: a plane that shares two processors with another load fails dials for want of them. */
const CHAOS = 'npm run chaos -- --short --rate 50 --each-kind';

/** What failed, to be said again at the end: a log's beginning may be cut. */
const failed = [];
const FAILED_LINE = /^\s*✖ (?!failing tests:)|^test at | {2}\w*Error\b|FAILED/;
const MOST_FAILED_LINES = 40;

/** Runs a command that ends with a closing line. */
async function counted(line, timeout) {
  const { status, output } = await command(line.split(' '), { show: () => true, timeout });
  failed.push(...new Set(output.split('\n').filter((each) => FAILED_LINE.test(each))));
  if (status !== 0) failed.push(`${line} ended with status ${status}`);
  const counts = readClosingLine(output) ?? ONE_FAILED;
  return status === 0 || counts.failed > 0 ? counts : ONE_FAILED;
}

/** Starts the demo, pastes each of its curl lines into a shell, and ends it as Ctrl-C does: by SIGINT to all of its group. */
async function start(line, gateways) {
  const begin = performance.now();
  const [program, ...args] = line.split(' ');
  const demo = spawn(program, args, { cwd: ROOT, detached: true, stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(demo, 'close');
  const end = (signal) => demo.exitCode === null && process.kill(-demo.pid, signal);
  const late = setTimeout(end, START_MS, 'SIGKILL');
  const printed = [];
  const failures = [];
  let pasted = 0;
  for await (const text of createInterface({ input: demo.stdout })) {
    printed.push(text);
    if (!text.startsWith('curl ') || pasted === gateways) continue;
    const { status, output } = await command(['bash', '-c', text], { timeout: DIAL_MS });
    if (status !== 0 || !output.includes(ANSWER)) failures.push(`status ${status} of: ${text}\n${output}`);
    if (++pasted === gateways) end('SIGINT');
  }
  const [status, signal] = await ended;
  clearTimeout(late);
  if (pasted < gateways) failures.push(`it printed ${pasted} lines of curl, not ${gateways}`);
  if (status !== 0) failures.push(`it ended with ${signal ?? status} after SIGINT, not 0`);
  const places = printed.flatMap((text) => text.match(/\S*isthmus-demo-[^/\s]+/) ?? []);
  failures.push(...places.filter((place) => existsSync(place)).map((place) => `${place} was not removed`));
  const pids = printed.flatMap((text) => text.match(/(?<= pid )\d+$/) ?? []);
  if (pids.length === 0) failures.push('it printed no pid of a program');
  const left = pids.filter((pid) => existsSync(`/proc/${pid}`));
  failures.push(...left.map((pid) => `process ${pid} was left behind`));
  if (failures.length > 0) console.log([...failures, 'It had printed:', ...printed].join('\n'));
  console.log(`${failures.length > 0 ? 'FAILED' : 'ok    '} ${line} (${seconds(performance.now() - begin)})`);
  return failures.length > 0 ? ONE_FAILED : ONE_PASSED;
}

const counts = sum([
  await counted('npm test', 60 * MINUTE),
  await counted(CHAOS, 25 * MINUTE),
  await start('npm start', 1),
  await start('npm start -- --split', 2),
]);
if (failed.length > 0) console.log(['\nFailed:', ...failed.slice(0, MOST_FAILED_LINES)].join('\n'));
console.log(`\n${closingLine(counts)}`);
process.exitCode = succeeded(counts) ? 0 : 1;
