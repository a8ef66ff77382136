// npm run chaos: injects one fault at a time into a plane of real processes under load. `npm run chaos -- --list` names the faults.
import { ensureInstalled } from './lib/ready.mjs';
import { withBundles } from './lib/tests.mjs';
import { ensureTools } from './lib/tools.mjs';

await ensureInstalled();
for (const line of await ensureTools('redis')) console.error(line);
await withBundles(() => import('../test/src/chaos/main.ts'));
