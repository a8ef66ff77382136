import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import test from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import type { Page } from 'playwright-core';
import { echo, type Relay, ROOT, relayTo, type Scope, scoped, sharedByFile, until } from '../harness/index.ts';
import { keepDialling, startPlane } from '../incidents/plane.ts';
import { adminOf, askFirst, carries, closed, dial } from '../plane/dials.ts';
import { faultless, goTo, NO_BROWSER, openConsole, rowsOf, startBrowser } from './browser.ts';

/** People's walks through the console, each from its first view to an answer. The pictures of README.md and OPERATE.md are taken on the way. */

/** Where pictures go, below the repository: `npm run screenshots` sets it. Without it, none are taken. */
const PICTURES = process.env.ISTHMUS_SCREENSHOTS;

const skip = NO_BROWSER || redisMissing();
const browser = sharedByFile(startBrowser);

/** A picture shows a plane of some size. */
const AGENTS = PICTURES === undefined ? 3 : 6;
/** What is wrong with the first two. The third is well. */
const [SLOW, DIES, WELL] = [0, 1, 2];
/** On each way between the slow agent and its hubs, in milliseconds. */
const SLOW_MS = 120;

/** Each agent serves a node of its own, so that a slow one is not hedged away. */
const nodeOf = (index: number) => `127.0.0.${101 + index}`;

/** The walks share it, in their order: a slow agent, an agent that dies, a hub that is drained. */
const plane = sharedByFile(async (scope) => {
  let relays: Promise<readonly [near: Relay, far: Relay]> | undefined;
  const balancers = async (ports: readonly number[]) =>
    [await relayTo(scope, ...ports), await relayTo(scope, ...ports)] as const;
  const { gateways, doors, hubs, agents } = await startPlane(scope, {
    agents: AGENTS,
    gatewayFlags: { 'proxy-strategies': 'destHost' },
    // Agents reach all hubs behind one address, the slow one too.
    each: (id) => ({ flags: id.startsWith('hub') ? { 'advertise-agent-address': undefined } : {} }),
    async agentFlags(index, ports) {
      relays ??= balancers(ports);
      const [near, far] = await relays;
      const { port } = index === SLOW ? far : near;
      return { 'agent-identifiers': `ipv4=${nodeOf(index)}`, 'proxy-server-port': port };
    },
  });
  const [[gateway], [door]] = [gateways, doors];
  const [, drained] = hubs;
  if (!gateway || !door || !drained || !relays) throw new Error('no gateway, no second hub, or no agents');
  const programs = [...gateways, ...hubs].map(({ program }) => program);
  await askFirst(scope, programs);
  const admin = adminOf(scope, gateway.program);
  const held = async () => (await admin.listSessions({})).sessions.length;
  await until(async () => (await held()) === 2 * AGENTS, { what: 'two sessions of each agent' });
  const [, far] = await relays;
  far.delayMs = SLOW_MS;
  return { gateway, door, drained, programs, agents };
});

/** A person who has opened the console of a gateway, as `npm start` and OPERATE.md say. */
async function person(scope: Scope) {
  const shared = await plane();
  const options = { viewport: { width: 1000, height: 640 } };
  const watched = await openConsole(scope, await browser(), shared.gateway.program, shared.programs, options);
  return { ...shared, watched, page: watched.page };
}

async function picture(page: Page, name: string): Promise<void> {
  if (PICTURES === undefined) return;
  const directory = `${ROOT}${PICTURES}`;
  mkdirSync(directory, { recursive: true });
  await page.screenshot({ path: `${directory}/${name}.png` });
}

test(
  'calls to some nodes are slow: Dials, then slowest, names the agent, and its dial shows where the time goes',
  { skip },
  scoped(async (scope) => {
    const { door, watched, page } = await person(scope);
    for (let index = 0; index < AGENTS; index++) {
      const { authority } = await echo(scope, { host: nodeOf(index) });
      keepDialling(scope, door, authority);
    }
    await goTo(page, 'Dials');
    await page.getByLabel('slowest').check();
    const slowest = async () => {
      const rows = await rowsOf(page, 'Slowest agents');
      return rows.length === AGENTS ? rows[0]?.Agent : undefined;
    };
    await until(async () => (await slowest()) === `agent-${SLOW}`, { what: 'the slow agent above all others' });
    await picture(page, 'slow-agent');
    // Whoever is not sure looks at one dial: its hub waits, its agent does not.
    const dials = page.getByRole('row').filter({ hasText: 'opened' });
    await dials
      .filter({ hasText: `${nodeOf(SLOW)}:` })
      .first()
      .getByRole('button')
      .click();
    const bars = page.getByRole('complementary').locator('figcaption li');
    const longest = (texts: readonly string[], name: string) =>
      Math.max(
        0,
        ...texts.map((text) => {
          const [, time = '0', unit] = new RegExp(`^${name} ([\\d.,]+) (m?s)`).exec(text) ?? [];
          return Number(time.replaceAll(',', '')) * (unit === 's' ? 1000 : 1);
        }),
      );
    const way = async () => {
      const texts = await bars.allInnerTexts();
      return longest(texts, 'hub') - longest(texts, 'agent');
    };
    await until(async () => (await way()) >= 2 * SLOW_MS, { what: 'the time between hub and agent in the bars' });
    faultless(watched);
  }),
);

test(
  'an agent died: the first view says so and what was cut, and one click shows whose tunnels',
  { skip },
  scoped(async (scope) => {
    const { door, agents, watched, page } = await person(scope);
    const { authority } = await echo(scope, { host: nodeOf(DIES) });
    const tunnels = [await dial(scope, door, 'mtls', authority), await dial(scope, door, 'grpc', authority)];
    for (const tunnel of tunnels) {
      tunnel.on('error', () => {});
      await carries(tunnel);
    }
    await agents[DIES]?.kill();
    for (const tunnel of tunnels) await closed(tunnel);
    await page.getByRole('heading', { name: '2 tunnels cut in the last hour' }).waitFor();
    await page.getByText(`agent-${DIES}: agent without a session`).first().waitFor();
    const [cause] = await rowsOf(page, 'What cut tunnels');
    assert.deepEqual([cause?.['Cut by'], cause?.What, cause?.Tunnels], ['agent', `agent agent-${DIES}`, '2']);
    await page.evaluate(() => scrollTo(0, 0));
    await picture(page, 'agent-died');
    await page.getByRole('link', { name: 'Whose they were, one by one' }).click();
    await page.getByRole('table', { name: 'Tunnels that were cut' }).waitFor();
    const cuts = await rowsOf(page, 'Tunnels that were cut');
    assert.deepEqual(
      cuts.map(({ Destination, Agent }) => [Destination, Agent]),
      [authority, authority].map((destination) => [destination, `agent-${DIES}`]),
    );
    assert.ok(
      cuts.some(({ Caller = '' }) => Caller.includes('kube-apiserver')),
      `callers: ${JSON.stringify(cuts)}`,
    );
    faultless(watched);
  }),
);

test(
  'a hub is to be replaced: Actions has it, the dry run says what moves, and the drain cuts nothing',
  { skip },
  scoped(async (scope) => {
    const { door, drained, programs, watched, page } = await person(scope);
    const { authority } = await echo(scope, { host: nodeOf(WELL) });
    const tunnels = [await dial(scope, door, 'connect', authority), await dial(scope, door, 'grpc', authority)];
    for (const tunnel of tunnels) await carries(tunnel);
    await goTo(page, 'Actions');
    await page.getByLabel('Member').selectOption(drained.id);
    await page.getByRole('heading', { name: `Drain ${drained.id}` }).waitFor();
    const wanted = Array.from({ length: AGENTS }, (_, index) => index)
      .filter((index) => index !== DIES)
      .map((index) => `agent-${index} 1`);
    let moves = '';
    const dryRun = async () => {
      await page.getByRole('button', { name: 'Dry run' }).click();
      await page.getByRole('table', { name: 'Sessions that would move' }).waitFor();
      const rows = await rowsOf(page, 'Sessions that would move');
      moves = rows
        .map((row) => `${row.Agent} ${row['Sessions elsewhere']}`)
        .sort()
        .join();
      return moves === wanted.join();
    };
    // An agent may be without one of its sessions for a moment.
    await until(dryRun, { what: () => `the moves of ${wanted}, not of ${moves}` });
    await page.getByRole('heading', { name: `Drain ${drained.id}` }).evaluate((heading) => heading.scrollIntoView());
    await picture(page, 'drain');
    await page.getByRole('button', { name: 'Drain …' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Drain', exact: true }).click();
    await page.getByText(`${drained.id} drains: `).waitFor();
    // It is empty when its row says so, and then may be stopped.
    await goTo(page, 'Plane');
    const row = async () => (await rowsOf(page, 'Members')).find(({ Member }) => Member === drained.id);
    let seen: Record<string, string> | undefined;
    const empty = async () => {
      seen = await row();
      const { State = '', Sessions, Tunnels } = seen ?? {};
      return /drained/.test(State) || (/draining/.test(State) && Sessions === '0' && Tunnels === '0');
    };
    await until(empty, { what: () => `the drained hub without sessions and tunnels: ${JSON.stringify(seen)}` });
    for (const tunnel of tunnels) await carries(tunnel, 'still here');
    const admin = adminOf(scope, programs[0] ?? drained.program);
    const { cuts } = await admin.getHistory({});
    assert.deepEqual(
      cuts.filter(({ destination }) => destination === authority),
      [],
    );
    faultless(watched);
  }),
);
