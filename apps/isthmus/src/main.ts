import process from 'node:process';

// It runs for months beside an API server, so it loads no other command.
if (process.argv[2] === 'hold') {
  process.argv.splice(2, 1);
  const { runHold } = await import('./hold/hold.ts');
  await runHold();
} else {
  const [{ EXIT }, { run }, { processTerminal }] = await Promise.all([
    import('./output.ts'),
    import('./program.ts'),
    import('./terminal.ts'),
  ]);
  const terminal = processTerminal();
  try {
    process.exitCode = await run(terminal);
  } catch (error) {
    // An unexpected error.
    terminal.err(`isthmus: ${error instanceof Error ? error.stack : String(error)}\n`);
    process.exitCode = EXIT.unasked;
  }
}
