import { proxyServer } from '@isthmus/flags';
import { runProgram } from '@isthmus/service';
import { createLogger } from '@isthmus/telemetry';
import { startServer } from './program.ts';

await runProgram({
  ...proxyServer,
  log: ({ v, 'log-format': format }) => createLogger({ name: proxyServer.name, format, verbosity: v }),
  start: startServer,
});
