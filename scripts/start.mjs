// npm start: runs a plane on this machine that carries real connections. `npm start -- --help` shows the options.
import { ensureInstalled } from './lib/ready.mjs';

// Not what only tests need: it is three quarters of all bytes.
await ensureInstalled({ tools: false });
await import('../apps/demo/src/main.ts');
