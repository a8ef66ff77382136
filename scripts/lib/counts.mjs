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

/** The closing line: `12 passed, 0 failed`, and `, 3 skipped` where some were. */
export function closingLine({ passed, failed, skipped }) {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`;
}

/** Reads the last closing line of an output back; undefined where there is none. */
export function readClosingLine(output) {
  const line = [...output.matchAll(/^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$/gm)].at(-1);
  return line && { passed: Number(line[1]), failed: Number(line[2]), skipped: Number(line[3] ?? 0) };
}

/** Nothing passed means that nothing ran, and that is not success. */
export function succeeded({ passed, failed }) {
  return failed === 0 && passed > 0;
}
