// npm test: installs what is missing, then the gate; in CI also the tests on the other runtimes.
import { closingLine, succeeded, sum } from './lib/counts.mjs';
import { gate } from './lib/gate.mjs';
import { RUNTIME_NAMES, testOn } from './lib/other-runtimes.mjs';
import { ensureInstalled } from './lib/ready.mjs';
import { ensureRedis } from './lib/redis.mjs';

await ensureInstalled();
const leftOut = await ensureRedis();
const results = [await gate()];
if (process.env.CI) {
  for (const name of RUNTIME_NAMES) results.push(await testOn(name));
}
const counts = sum(results);
if (leftOut) console.log(`\n${leftOut}`);
console.log(`\n${closingLine(counts)}`);
process.exitCode = succeeded(counts) ? 0 : 1;
