import { backendHub } from '@isthmus/flags';
import { runServer } from '@isthmus/plane';
import { hubRole } from './index.ts';

await runServer(backendHub, { hub: hubRole });
