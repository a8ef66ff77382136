import { frontendGateway } from '@isthmus/flags';
import { runProgram } from '@isthmus/service';
import { createLogger } from '@isthmus/telemetry';
import { startGateway } from './program.ts';

await runProgram({
  ...frontendGateway,
  log: ({ v, 'log-format': format }) => createLogger({ name: frontendGateway.name, format, verbosity: v }),
  start: startGateway,
});
