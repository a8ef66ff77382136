// npm test: installs what is missing, then runs the gate; in CI also runs the unit tests on the other runtimes.
import { closingLine, NOTHING, succeeded, sum } from './lib/counts.mjs';
import { gate } from './lib/gate.mjs';
import { ensureInstalled } from './lib/ready.mjs';
import { testOn } from './lib/runtimes.mjs';
import { ensureTools } from './lib/tools.mjs';

await ensureInstalled();
const missing = await ensureTools('redis', 'chromium', 'prometheus');
const here = await gate();
const elsewhere = process.env.CI ? sum([await testOn('floor'), await testOn('deno')]) : NOTHING;
const counts = sum([here, elsewhere]);
for (const line of missing) console.log(`\n${line}`);
console.log(`\n${closingLine(counts)}`);
process.exitCode = succeeded(counts) ? 0 : 1;
