// npm run bench, chaos, scale and incidents: each runs a rig of test/src on real processes, and says by `-- --help` how.
import { ensureInstalled, withBundles } from './lib/ready.mjs';
import { ensureTools } from './lib/tools.mjs';

const [rig] = process.argv.splice(2, 1);
await ensureInstalled();
const main = () => import(`../test/src/${rig}/main.ts`);
if (process.argv.some((option) => option === '--help' || option === '--list')) await main();
else {
  for (const line of await ensureTools(['redis'])) console.error(line);
  await withBundles(main);
}
