// npm test: installs what is missing, then runs the gate; in CI also runs the tests on the other runtimes.
import { closingLine, succeeded, sum } from './lib/counts.mjs';
import { gate } from './lib/gate.mjs';
import { RUNTIME_NAMES, testOn } from './lib/other-runtimes.mjs';
import { ensurePromtool } from './lib/promtool.mjs';
import { ensureInstalled } from './lib/ready.mjs';
import { ensureRedis } from './lib/redis.mjs';

await ensureInstalled();
const leftOut = [await ensureRedis(), await ensurePromtool()];
const here = await gate();
// One after the other: each suite alone keeps two processors busy. CI has time for all unit tests and for the tests of what callers meet,
// except the one that moves hundreds of megabytes; `npm run test:deno` and `test:node-latest` run everything.
const IN_CI = '^(libs|apps)/|^test/(src|dist)/edges/(?!transfers)';
const elsewhere = [];
for (const name of process.env.CI ? RUNTIME_NAMES : []) elsewhere.push(await testOn(name, { match: IN_CI }));
const counts = sum([here, ...elsewhere]);
for (const line of leftOut) if (line) console.log(`\n${line}`);
console.log(`\n${closingLine(counts)}`);
process.exitCode = succeeded(counts) ? 0 : 1;
