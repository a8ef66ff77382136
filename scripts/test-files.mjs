// Runs the compiled tests of packages (build them first), or the tests beside scripts:
//   node scripts/test-files.mjs [--match=PATTERN] DIRECTORY...
import { relative, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { closingLine, succeeded } from './lib/counts.mjs';
import { runTests } from './lib/tests.mjs';
import { compiledTests, filesBelow } from './lib/workspace.mjs';

const { values, positionals } = parseArgs({
  options: { match: { type: 'string', default: '' } },
  allowPositionals: true,
});
if (positionals.length === 0) {
  console.error('test-files.mjs: name the directories of the packages to test');
  process.exit(2);
}
const pattern = new RegExp(values.match);
const files = positionals.flatMap((directory) => [
  ...compiledTests(resolve(directory)),
  ...filesBelow(resolve(directory), (path) => path.endsWith('.test.mjs')),
]);
const chosen = files.map((file) => relative(process.cwd(), file)).filter((file) => pattern.test(file));
const { counts, skipped, slowest } = await runTests(chosen);
if (skipped.length > 0) console.log(`skipped:\n  ${skipped.join('\n  ')}`);
console.log(`${chosen.length} files; slowest: ${slowest.join(', ') || 'none'}`);
console.log(`\n${closingLine(counts)}`);
// A package may have no tests; tests that do not run have failed.
process.exitCode = chosen.length === 0 || succeeded(counts) ? 0 : 1;
