// npm run ok: the one gate that a change must pass.
import { closingLine, succeeded } from './lib/counts.mjs';
import { gate } from './lib/gate.mjs';
import { ensureInstalled } from './lib/ready.mjs';

await ensureInstalled();
const counts = await gate();
console.log(`\n${closingLine(counts)}`);
process.exitCode = succeeded(counts) ? 0 : 1;
