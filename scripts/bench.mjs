// npm run bench: measures what a plane carries and costs, beside relays and no plane at all. `npm run bench -- --help` shows the options.
import { ensureInstalled } from './lib/ready.mjs';
import { withBundles } from './lib/tests.mjs';
import { ensureTools } from './lib/tools.mjs';

await ensureInstalled();
for (const line of await ensureTools('redis')) console.error(line);
await withBundles(() => import('../test/src/bench/main.ts'));
