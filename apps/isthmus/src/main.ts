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
  const { processTerminal } = await import('./terminal.ts');
  const terminal = processTerminal();
  const { run } = await import('./program.ts');
  process.exitCode = await run(terminal);
}
