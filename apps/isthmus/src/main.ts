import process from 'node:process';
import { EXIT } from './output.ts';
import { run } from './program.ts';
import { processTerminal } from './terminal.ts';

const terminal = processTerminal();
try {
  process.exitCode = await run(terminal);
} catch (error) {
  // An unexpected error.
  terminal.err(`isthmus: ${error instanceof Error ? error.stack : String(error)}\n`);
  process.exitCode = EXIT.unasked;
}
