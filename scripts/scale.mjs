// npm run scale: runs thousands of simulated agents against a real plane. `npm run scale -- --help` shows the options.
import { ensureReady } from './lib/ready.mjs';
import { ensureRedis } from './lib/redis.mjs';

await ensureReady(['test', 'apps/backend-hub', 'apps/frontend-gw']);
const missing = await ensureRedis();
if (missing) console.log(missing);
await import('../test/dist/scale/main.js');
