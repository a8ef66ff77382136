import process from 'node:process';

// It runs for months beside an API server, so it loads no other command.
if (process.argv[2] === 'hold') {
  process.argv.splice(2, 1);
  const { runHold } = await import('./hold/hold.ts');
  await runHold();
} else if (process.argv[2] === 'tenants' && process.argv[3] === 'sync') {
  // So does this one, beside a gateway or hub.
  process.argv.splice(2, 2);
  const { runSync } = await import('@isthmus/tenants-sync');
  await runSync();
} else {
  const [{ printable }, { EXIT }, { run }, { processTerminal }] = await Promise.all([
    import('@isthmus/runtime'),
    import('./output.ts'),
    import('./program.ts'),
    import('./terminal.ts'),
  ]);
  const terminal = processTerminal((error) => {
    terminal.err(`isthmus: cannot write what it found: ${error.message}\n`);
    process.exit(EXIT.failed);
  });
  try {
    process.exitCode = await run(terminal);
  } catch (error) {
    // A bug: its place is what matters.
    const lines = String(error instanceof Error ? error.stack : error).split('\n');
    terminal.err(`isthmus: ${lines.map(printable).join('\n')}\n`);
    process.exitCode = EXIT.failed;
  }
}
