// npm start: a plane on this machine that carries real connections. `npm start -- --help` shows what it takes.
import { ensureReady } from './lib/ready.mjs';
import { workspacePackages } from './lib/workspace.mjs';

// The programs, and not the tests: one that is being written must not keep the demo from starting.
const paths = workspacePackages().map(({ path }) => path);
await ensureReady(paths.filter((path) => path.startsWith('apps/')));
await import('../apps/demo/dist/main.js');
