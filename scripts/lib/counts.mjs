import { stripVTControlCharacters } from 'node:util';

/** What ran and how it ended: `{ passed, failed, skipped }`. */
export const ONE_PASSED = Object.freeze({ passed: 1, failed: 0, skipped: 0 });
export const ONE_FAILED = Object.freeze({ passed: 0, failed: 1, skipped: 0 });

export function sum(counts) {
  const of = (outcome) => counts.reduce((total, each) => total + each[outcome], 0);
  return { passed: of('passed'), failed: of('failed'), skipped: of('skipped') };
}

/** The closing line: `12 passed, 0 failed`, and `, 3 skipped` if some were. */
export function closingLine({ passed, failed, skipped }) {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`;
}

/** Nothing passed means that nothing ran, and that is not success. */
export function succeeded({ passed, failed }) {
  return failed === 0 && passed > 0;
}

/** What `node --test`, `deno test` and runs of our own say at their ends. A test that was cancelled has not passed. */
const SAID = {
  passed: /^ℹ pass (\d+)$|^(?:(?:ok|FAILED) \| )?(\d+) passed/gm,
  failed: /^ℹ (?:fail|cancelled) (\d+)$|^(?:(?:ok|FAILED) \| )?\d+ passed.*? (\d+) failed/gm,
  skipped: /^ℹ skipped (\d+)$|^(?:(?:ok|FAILED) \| )?\d+ passed.* (\d+) (?:ignored|skipped)/gm,
};

/** Sums up the counts in the output of Nx, or of one run. A target of tests that printed none has failed: a test has ended its process. */
export function countsIn(output) {
  return sum(
    stripVTControlCharacters(output)
      .split(/^> nx run (?=\S+:)/m)
      .map(countsOfRun),
  );
}

function countsOfRun(output) {
  const of = (line) => [...output.matchAll(line)].reduce((total, [, node, other]) => total + Number(node ?? other), 0);
  const counts = { passed: of(SAID.passed), failed: of(SAID.failed), skipped: of(SAID.skipped) };
  const target = /^\S+:test\S*/.exec(output)?.[0];
  if (!target || counts.passed + counts.failed + counts.skipped > 0) return counts;
  console.log(`${target}: no test has passed, failed or been skipped: one of them ends the process`);
  return ONE_FAILED;
}
