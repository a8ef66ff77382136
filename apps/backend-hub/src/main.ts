import { backendHub } from '@isthmus/flags';
import { runProgram } from '@isthmus/service';
import { createLogger } from '@isthmus/telemetry';
import { startHub } from './program.ts';

await runProgram({
  ...backendHub,
  log: ({ v, 'log-format': format }) => createLogger({ name: backendHub.name, format, verbosity: v }),
  start: startHub,
});
