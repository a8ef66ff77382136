// npm start: runs a plane on this machine that carries real connections. `npm start -- --help` shows the options.
import { ensureReady } from './lib/ready.mjs';
import { workspacePackages } from './lib/workspace.mjs';

// Build the programs but not the tests, and do not install what only these need: it is three quarters of all bytes, and an unfinished
// test must not keep the demo from starting.
const paths = workspacePackages().map(({ path }) => path);
await ensureReady(
  paths.filter((path) => path.startsWith('apps/')),
  { tools: false },
);
await import('../apps/demo/dist/main.js');
