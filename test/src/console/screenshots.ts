import { blackHole, echo, freePort, ROOT, Scope } from '../harness/index.ts';
import { startPlane } from '../incidents/plane.ts';
import { adminOf, askFirst, dial } from '../plane/dials.ts';
import { openConsole, startBrowser } from './browser.ts';

/** Takes the picture of the README: `npm run build && npm run screenshots`. */

const PICTURE = `${ROOT}libs/console/console.png`;
/** Small enough for a repository. */
const VIEWPORT = { width: 1000, height: 390 };

await using scope = new Scope();
const { gateways, hubs } = await startPlane(scope, { agents: 24 });
const [gateway] = gateways;
if (!gateway) throw new Error('no gateway');
const programs = [...gateways, ...hubs].map(({ member }) => member.program);
await askFirst(scope, programs);
const { program } = gateway.member;
const admin = adminOf(scope, program);
const { authority } = await echo(scope);
await dial(scope, gateway.ways, 'connect', `127.0.0.1:${await freePort()}`).catch(() => {});
await admin.dial({ destination: await blackHole(scope), timeoutMs: 1500 });
for (let n = 0; n < 8; n++) await admin.dial({ destination: authority });
await admin.quarantine({ agent: { tenant: '', agentId: 'agent-7' }, reason: 'disk full on node 7' });
const { page } = await openConsole(scope, await startBrowser(scope), program, programs, { viewport: VIEWPORT });
await page.getByRole('cell', { name: 'in quarantine' }).waitFor();
await page.screenshot({ path: PICTURE });
