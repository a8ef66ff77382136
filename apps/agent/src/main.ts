import { proxyAgent } from '@isthmus/flags';
import { runProgram } from '@isthmus/service';
import { createLogger } from '@isthmus/telemetry';
import { startAgent } from './program.ts';

await runProgram({
  ...proxyAgent,
  log: ({ v, 'log-format': format }) => createLogger({ name: proxyAgent.name, format, verbosity: v }),
  start: startAgent,
});
