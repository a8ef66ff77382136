import { seconds } from './command.mjs';

/** How often a terminal is redrawn, and how often a log gets a line, in milliseconds. */
const REDRAW_MS = 500;
const LINE_MS = 5000;

/**
 * Runs something that takes a while, and shows on standard error what is done and what is left. A terminal shows it on one line; anything
 * else gets a line now and then.
 * @param look returns `[done, all]`, or undefined while that is not known
 */
export async function withProgress(what, run, look, stream = process.stderr) {
  const start = performance.now();
  const passed = () => performance.now() - start;
  const text = () => progressText(look(), passed());
  const draw = stream.isTTY
    ? () => stream.write(`\r\u001b[K${what} ... ${text()}`)
    : () => stream.write(`  ${what}: ${text()}\n`);
  stream.write(`${what} ... ${stream.isTTY ? '' : '\n'}`);
  const timer = setInterval(draw, stream.isTTY ? REDRAW_MS : LINE_MS);
  try {
    return await run();
  } finally {
    clearInterval(timer);
    stream.write(`${stream.isTTY ? '\r\u001b[K' : '  '}${what}: ${seconds(passed())}\n`);
  }
}

/** Below this part there is nothing to judge from. */
const EARLY = 0.1;

/** `12 of 40, about 9 s left` */
export function progressText(counts, ms) {
  const [done, all] = counts ?? [0, 0];
  if (all === 0) return `${seconds(ms)} so far`;
  const left =
    done / all < EARLY || done >= all ? '' : `, about ${Math.ceil(((ms / done) * (all - done)) / 1000)} s left`;
  return `${done} of ${all}${left}`;
}
