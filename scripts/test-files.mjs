// Runs the compiled tests of packages (build them first):
//   node scripts/test-files.mjs [--match=PATTERN] DIRECTORY...
import { relative, resolve } from 'node:path';
import { closingLine } from './lib/counts.mjs';
import { runTests } from './lib/tests.mjs';
import { compiledTests } from './lib/workspace.mjs';

const [options, directories] = [true, false].map((wanted) =>
  process.argv.slice(2).filter((arg) => arg.startsWith('--match=') === wanted),
);
const pattern = new RegExp(options[0]?.slice('--match='.length) ?? '');
if (directories.length === 0) {
  console.error('test-files.mjs: name the directories of the packages to test');
  process.exit(2);
}
const files = directories.flatMap((directory) => compiledTests(resolve(directory)));
const chosen = files.map((file) => relative(process.cwd(), file)).filter((file) => pattern.test(file));
const { counts } = await runTests(chosen);
console.log(`\n${closingLine(counts)}`);
process.exitCode = counts.failed > 0 ? 1 : 0;
