// Runs several test files in this process, one after the other: node test-process.mjs STATE FILE...
// Writes the name of the file that runs to STATE, so that `runTests` can name it if this process hangs or crashes.
import { writeFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { hasHooks } from './test-jobs.mjs';
import { ALL_FILES_DONE, fileMark, TESTS_LOAD } from './test-reporter.mjs';

/** How long the process may go on after the last test, in milliseconds. It ends at once unless a test left something open. */
const LEFT_OPEN_MS = 30_000;

/** How long the reporter gets before each file, in milliseconds. Nothing depends on it but the count of a process that crashes. */
const REPORT_MS = 1;

const [state, ...files] = process.argv.slice(2);
for (const file of files) {
  await started(fileMark(file), async () => {
    writeFileSync(state, file);
    const load = () =>
      import(pathToFileURL(file).href).catch((error) => void test(TESTS_LOAD, () => Promise.reject(error)));
    await (hasHooks(file) ? asSuite(fileMark(file), load) : load());
  });
}
await test(ALL_FILES_DONE, () => {});
writeFileSync(state, ALL_FILES_DONE);
setTimeout(() => {
  console.error(`something is still open after all tests: ${process.getActiveResourcesInfo().join(', ')}`);
  process.exit(1);
}, LEFT_OPEN_MS).unref();

/**
 * Starts a test when those before it have ended, and loads a file while it runs: the tests in the file wait until the file is loaded, as
 * they do in a process of their own.
 */
async function started(name, load) {
  let end;
  await new Promise((begin) => {
    test(name, () => {
      begin();
      return new Promise((resolve) => {
        end = resolve;
      });
    });
  });
  // Lets the reporter write what it has of the files before, in case that this one ends the process.
  await new Promise((resolve) => setTimeout(resolve, REPORT_MS));
  await load();
  end();
}

/** Loads a file inside of a suite, so that the hooks of the file are hooks of the suite, and end before the next file begins. */
function asSuite(name, load) {
  return new Promise((loaded) => {
    describe(name, async () => {
      await load();
      loaded();
    });
  });
}
