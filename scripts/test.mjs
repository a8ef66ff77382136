// npm test: installs what is missing, then the gate; in CI also the tests on the other runtimes.
import { closingLine, succeeded, sum } from './lib/counts.mjs';
import { gate } from './lib/gate.mjs';
import { RUNTIME_NAMES, testOn } from './lib/other-runtimes.mjs';
import { ensureInstalled } from './lib/ready.mjs';
import { ensureRedis } from './lib/redis.mjs';

await ensureInstalled();
const leftOut = await ensureRedis();
const here = await gate();
// Side by side: the tests mostly wait, and continuous integration does not want to.
const elsewhere = process.env.CI ? await Promise.all(RUNTIME_NAMES.map((name) => testOn(name))) : [];
const counts = sum([here, ...elsewhere]);
if (leftOut) console.log(`\n${leftOut}`);
console.log(`\n${closingLine(counts)}`);
process.exitCode = succeeded(counts) ? 0 : 1;
