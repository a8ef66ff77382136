import { backendHub } from '@isthmus/flags';
import { runServer } from '@isthmus/plane';
import { hubRole } from './from-flags.ts';

await runServer(backendHub, { hub: hubRole });
