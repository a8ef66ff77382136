// npm start: a plane on this machine that carries real connections. `npm start -- --help` shows what it takes.
import { ensureReady } from './lib/ready.mjs';

await ensureReady();
await import('../apps/demo/dist/main.js');
