import { appendFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { inspect } from 'node:util';

/** Names the file for the reports in the environment. */
export const REPORTS = 'ISTHMUS_TEST_REPORTS';

/** The program that runs several files in one process. */
export const TOGETHER = fileURLToPath(new URL('test-process.mjs', import.meta.url));

/** Names of the tests with which it tells the reports of its files apart, and of the suites around the tests of each. */
const FILE_MARK = 'file: ';
export const fileMark = (file) => `${FILE_MARK}${file}`;
export const ALL_FILES_DONE = 'all files are done';
/** Names what fails if a file throws while it loads. */
export const TESTS_LOAD = 'its tests load';
/** Names what fails if a hook does that stands outside of the file's suites. */
const FILE_HOOKS = 'its hooks';

/**
 * Reports the tests of a process as lines of JSON, for `runTests`:
 * - `{ outcome: 'passed' | 'failed' | 'skipped', name, line, why }` for each test. A suite counts with its tests, so it is reported only
 *   if a hook of its own failed.
 * - `{ outcome: 'file', name, at }` before the tests of each file, if several share a process, and with an empty name behind the last
 *   one. `at` is in milliseconds.
 * - `{ outcome: 'error', why }` for what a test caused after its end.
 * - `{ outcome: 'end' }` behind all others. A process that ends before its tests do writes none, whatever its status.
 */
export default async function* report(events) {
  const names = [];
  for await (const { type, data } of events) {
    const isOurs = data?.file === TOGETHER;
    // What is around a whole file has no name: alone, the file would have nothing around it.
    if (type === 'test:start') names[data.nesting] = isOurs ? '' : data.name;
    if (type === 'test:diagnostic' && /^(Error|Warning): /.test(data.message)) {
      yield line({ outcome: 'error', why: data.message });
    }
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    const error = data.details.error;
    const isSuite = data.details.type === 'suite';
    const mark = isOurs && !isSuite ? markOf(data.name) : undefined;
    if (mark !== undefined) {
      yield line({ outcome: 'file', name: mark, at: Date.now() });
      if (error) yield line({ outcome: 'failed', name: TESTS_LOAD, line: 1, why: described(error) });
      continue;
    }
    const bySubtests = error?.failureType === 'subtestsFailed';
    // A file that does not load leaves the suite around it open; its mark says why.
    const isLeftOpen = isOurs && error?.failureType === 'cancelledByParent';
    if (isSuite && (type === 'test:pass' || bySubtests || isLeftOpen)) continue;
    const skipped = data.skip ?? data.todo;
    const name = [...names.slice(0, data.nesting), isOurs && isSuite ? FILE_HOOKS : data.name]
      .filter(Boolean)
      .join(' > ');
    yield line({
      outcome: skipped !== undefined ? 'skipped' : type === 'test:pass' ? 'passed' : 'failed',
      name,
      line: isOurs ? 1 : data.line,
      why: skipped !== undefined ? reason(skipped) : error && !bySubtests ? described(error) : '',
    });
  }
  yield line({ outcome: 'end' });
}

/** Writes at once, so that nothing is lost if the process ends: the stream of a destination would hold it back. */
function line(report) {
  appendFileSync(process.env[REPORTS], `${JSON.stringify(report)}\n`);
  return '';
}

/** Returns the file that a mark names, and an empty name for the mark after the last file. */
function markOf(name) {
  if (name === ALL_FILES_DONE) return '';
  return name.startsWith(FILE_MARK) ? name.slice(FILE_MARK.length) : undefined;
}

function reason(skipped) {
  return typeof skipped === 'string' ? skipped : '';
}

function described(error) {
  const cause = error.cause ?? error;
  return cause instanceof Error ? inspect(cause) : String(cause);
}
