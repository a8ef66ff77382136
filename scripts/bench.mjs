// npm run bench: measures what a plane carries and costs, beside relays and no plane at all. `npm run bench -- --help` shows the options.
import { ensureReady } from './lib/ready.mjs';
import { ensureRedis } from './lib/redis.mjs';

await ensureReady(['test', 'apps/server', 'apps/agent', 'apps/backend-hub', 'apps/frontend-gw']);
const missing = await ensureRedis();
if (missing) console.error(missing);
await import('../test/dist/bench/main.js');
