// Runs the unit and integration tests on another runtime:
//   node scripts/test-runtime.mjs node-latest|deno
import { closingLine, succeeded } from './lib/counts.mjs';
import { RUNTIME_NAMES, testOn } from './lib/other-runtimes.mjs';
import { ensureReady } from './lib/ready.mjs';

const [name] = process.argv.slice(2);
if (!RUNTIME_NAMES.includes(name)) {
  console.error(`test-runtime.mjs: name one of ${RUNTIME_NAMES.join(', ')}`);
  process.exit(2);
}
await ensureReady();
const counts = await testOn([name], { show: true });
console.log(`\n${closingLine(counts)}`);
process.exitCode = succeeded(counts) ? 0 : 1;
