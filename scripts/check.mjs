// Runs one command as a check of the gate: passes its output through, and ends with a count.
//   node scripts/check.mjs PROGRAM [ARGUMENT]...
import { bin, command } from './lib/command.mjs';
import { closingLine, ONE_FAILED, ONE_PASSED } from './lib/counts.mjs';

const [program, ...args] = process.argv.slice(2);
const { status } = await command([program === 'node' ? process.execPath : bin(program), ...args], { show: true });
console.log(`\n${closingLine(status === 0 ? ONE_PASSED : ONE_FAILED)}`);
process.exitCode = status;
