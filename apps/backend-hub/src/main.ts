import { backendHub } from '@isthmus/flags';
import { runServer } from '@isthmus/plane';
import { hubRole } from './role.ts';

await runServer(backendHub, { hub: hubRole });
