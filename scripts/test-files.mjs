// Runs the compiled tests of packages (build them first):
//   node scripts/test-files.mjs DIRECTORY...
import { relative, resolve } from 'node:path';
import { closingLine } from './lib/counts.mjs';
import { runTests } from './lib/tests.mjs';
import { compiledTests } from './lib/workspace.mjs';

const directories = process.argv.slice(2);
if (directories.length === 0) {
  console.error('test-files.mjs: name the directories of the packages to test');
  process.exit(2);
}
const files = directories.flatMap((directory) => compiledTests(resolve(directory)));
const { counts } = await runTests(
  files.map((file) => relative(process.cwd(), file)),
  { show: true },
);
console.log(`\n${closingLine(counts)}`);
process.exitCode = counts.failed > 0 ? 1 : 0;
