// npm run test:floor, npm run test:deno: runs the unit tests on another runtime.
import { closingLine, succeeded } from './lib/counts.mjs';
import { ensureInstalled } from './lib/ready.mjs';
import { testOn } from './lib/runtimes.mjs';

await ensureInstalled();
const counts = await testOn(process.argv[2]);
console.log(`\n${closingLine(counts)}`);
process.exitCode = succeeded(counts) ? 0 : 1;
