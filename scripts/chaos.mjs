// npm run chaos: injects one fault at a time into a plane of real processes under load. `npm run chaos -- --list` names the faults.
import { ensureReady } from './lib/ready.mjs';
import { ensureRedis } from './lib/redis.mjs';

await ensureReady();
const leftOut = await ensureRedis();
if (leftOut) console.error(leftOut);
await import('../test/dist/chaos/main.js');
