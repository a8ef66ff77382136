// npm run scale: runs thousands of simulated agents against a real plane. `npm run scale -- --help` shows the options.
import { ensureInstalled } from './lib/ready.mjs';
import { withBundles } from './lib/tests.mjs';
import { ensureTools } from './lib/tools.mjs';

await ensureInstalled();
for (const line of await ensureTools('redis')) console.log(line);
await withBundles(() => import('../test/src/scale/main.ts'));
