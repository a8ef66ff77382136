/** What ran and how it ended: `{ passed, failed, skipped }`. */
export const NOTHING = Object.freeze({ passed: 0, failed: 0, skipped: 0 });
export const ONE_PASSED = Object.freeze({ ...NOTHING, passed: 1 });
export const ONE_FAILED = Object.freeze({ ...NOTHING, failed: 1 });

export function sum(counts) {
  return counts.reduce(
    (total, { passed, failed, skipped }) => ({
      passed: total.passed + passed,
      failed: total.failed + failed,
      skipped: total.skipped + skipped,
    }),
    NOTHING,
  );
}

/** The closing line: `12 passed, 0 failed`, and `, 3 skipped` if some were. */
export function closingLine({ passed, failed, skipped }) {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`;
}

/** Parses every closing line of an output. */
export function readClosingLines(output) {
  return [...output.matchAll(/^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$/gm)].map(([, ...numbers]) => {
    const [passed, failed, skipped = 0] = numbers.filter((text) => text !== undefined).map(Number);
    return { passed, failed, skipped };
  });
}

/** Parses the last closing line of an output; undefined if there is none. */
export function readClosingLine(output) {
  return readClosingLines(output).at(-1);
}

/** Nothing passed means that nothing ran, and that is not success. */
export function succeeded({ passed, failed }) {
  return failed === 0 && passed > 0;
}
