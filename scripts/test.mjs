// npm test: installs what is missing, then runs the gate; in CI also runs the tests on the other runtimes.
import { ensureChromium } from './lib/chromium.mjs';
import { closingLine, NOTHING, succeeded, sum } from './lib/counts.mjs';
import { gate } from './lib/gate.mjs';
import { IN_CI, RUNTIME_NAMES, testOn } from './lib/other-runtimes.mjs';
import { ensurePromtool } from './lib/promtool.mjs';
import { ensureInstalled } from './lib/ready.mjs';
import { ensureRedis } from './lib/redis.mjs';

await ensureInstalled();
const leftOut = [await ensureRedis(), await ensureChromium(), await ensurePromtool()];
const here = await gate();
const elsewhere = process.env.CI ? await testOn(RUNTIME_NAMES, { match: IN_CI }) : NOTHING;
const counts = sum([here, elsewhere]);
for (const line of leftOut) if (line) console.log(`\n${line}`);
console.log(`\n${closingLine(counts)}`);
process.exitCode = succeeded(counts) ? 0 : 1;
