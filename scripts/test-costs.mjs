// Runs all tests, as the gate does, and writes how many seconds the slow ones took: the gate starts these first. For a machine
// that does nothing else; build before.
//   node scripts/test-costs.mjs
import { writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { sourceOf } from './lib/test-jobs.mjs';
import { runTests } from './lib/tests.mjs';
import { compiledTests, filesBelow, ROOT, suites } from './lib/workspace.mjs';

/** Below, a guess by the length of the file does. In seconds. */
const LEAST = 0.5;

const { unit, integration } = suites();
const ofScripts = filesBelow(join(ROOT, 'scripts'), (path) => path.endsWith('.test.mjs'));
const compiled = [...unit, ...integration].flatMap((dir) => compiledTests(dir));
const files = [...compiled, ...ofScripts].map((file) => relative(ROOT, file));
const { counts, times } = await runTests(files);
const slow = [...times]
  .map(([file, ms]) => [sourceOf(file), Math.round(ms / 100) / 10])
  .filter(([, cost]) => cost >= LEAST);
const text = JSON.stringify(Object.fromEntries(slow.sort(([a], [b]) => (a < b ? -1 : 1))), undefined, 2);
writeFileSync(new URL('lib/test-costs.json', import.meta.url), `${text}\n`);
console.log(`${slow.length} of ${files.length} files take ${LEAST} s or more; ${counts.failed} tests failed`);
process.exitCode = counts.failed > 0 ? 1 : 0;
