// npm run incidents: stages one of five incidents in a plane of real processes, for somebody to find out what is wrong.
// `npm run incidents -- --number 3` stages the third.
import { ensureReady } from './lib/ready.mjs';
import { ensureRedis } from './lib/redis.mjs';

await ensureReady();
const leftOut = await ensureRedis();
if (leftOut) console.error(leftOut);
await import('../test/dist/incidents/main.js');
