// npm run incidents: stages one of five incidents in a plane of real processes, for somebody to find out what is wrong.
// `npm run incidents -- --number 3` stages the third.
import { ensureInstalled } from './lib/ready.mjs';
import { ensureTools } from './lib/tools.mjs';

await ensureInstalled();
for (const line of await ensureTools('redis')) console.error(line);
await import('../test/src/incidents/main.ts');
