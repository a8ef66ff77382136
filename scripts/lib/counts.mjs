/** What ran and how it ended: `{ passed, failed, skipped }`. */
export const NOTHING = Object.freeze({ passed: 0, failed: 0, skipped: 0 });
export const ONE_PASSED = Object.freeze({ ...NOTHING, passed: 1 });
export const ONE_FAILED = Object.freeze({ ...NOTHING, failed: 1 });

export function sum(counts) {
  const of = (outcome) => counts.reduce((total, each) => total + each[outcome], 0);
  return { passed: of('passed'), failed: of('failed'), skipped: of('skipped') };
}

/** The closing line: `12 passed, 0 failed`, and `, 3 skipped` if some were. */
export function closingLine({ passed, failed, skipped }) {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`;
}

/** Parses the last closing line of an output; undefined if there is none. */
export function readClosingLine(output) {
  const line = [...output.matchAll(/^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$/gm)].at(-1);
  if (!line) return undefined;
  const [passed, failed, skipped] = line.slice(1).map((count) => Number(count ?? 0));
  return { passed, failed, skipped };
}

/** Nothing passed means that nothing ran, and that is not success. */
export function succeeded({ passed, failed }) {
  return failed === 0 && passed > 0;
}

/**
 * Sums up the counts that every `node --test` in an output printed last. A test that was cancelled has not passed. A target of Nx that runs
 * tests and printed no count has failed: a test has ended its process, perhaps with status 0.
 */
export function nodeCounts(output) {
  const targets = output.split(/^> nx run (?=\S+:)/m);
  return sum(targets.map(countsOfRun));
}

function countsOfRun(output) {
  const of = (...outcomes) =>
    outcomes
      .flatMap((outcome) => [...output.matchAll(new RegExp(`^ℹ ${outcome} (\\d+)$`, 'gm'))])
      .reduce((total, [, count]) => total + Number(count), 0);
  const counts = { passed: of('pass'), failed: of('fail', 'cancelled'), skipped: of('skipped') };
  const target = /^\S+:test\S*/.exec(output)?.[0];
  if (!target || counts.passed + counts.failed + counts.skipped > 0) return counts;
  console.log(`${target}: no test has passed, failed or been skipped: one of them ends the process`);
  return ONE_FAILED;
}

/** Reads the last line of `deno test`: `ok | 3 passed (4 steps) | 0 failed | 1 ignored (2 s)`. */
export function denoCounts(output) {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: colours
  const plain = output.replace(/\u001b\[\d+m/g, '');
  const line = [...plain.matchAll(/^(?:ok|FAILED) \| .*$/gm)].at(-1)?.[0] ?? '';
  const of = (outcome) => Number(new RegExp(`(\\d+) ${outcome}`).exec(line)?.[1] ?? 0);
  return { passed: of('passed'), failed: of('failed'), skipped: of('ignored') };
}
