/// <reference lib="dom" />
import assert from 'node:assert/strict';
import test from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import { echo, scoped, sharedByFile, split, unlessSlow, until } from '../harness/index.ts';
import { rogueAgent } from '../hostile/links.ts';
import { adminOf, dial } from '../plane/dials.ts';
import { faultless, goTo, NO_BROWSER, openConsole, startBrowser } from './browser.ts';

const skip = NO_BROWSER || redisMissing();
const browser = sharedByFile(startBrowser);

const VIEWS = ['Plane', 'Dials', 'Tunnels', 'Why', 'Time', 'Actions'];

const SCRIPT = '"><img/src=x/onerror=alert(1)><script>alert(2)</script>';
/** As long as an agent's name may be. */
const NAME = SCRIPT.padEnd(253, 'x');
const LONG = `${SCRIPT}${'y'.repeat(10_240)}`;

/** The evil agent's plane. It carries dials like any other agent's. */
const plane = sharedByFile(async (scope) => {
  const claims = { 'agent-id': NAME, 'agent-identifiers': `host=${encodeURIComponent(LONG)}` };
  const { trust, gateways, hubs } = await split(scope, {
    gateways: 1,
    hubs: 1,
    agentFlags: claims,
    hubFlags: { 'max-agent-identifier-bytes': 20_000 },
  });
  const [[gateway], [hub]] = [gateways, hubs];
  assert.ok(gateway && hub);
  return { trust, gateway, hub, programs: [gateway.program, hub.program] };
});

/** Dials that the page sees. It keeps the last thousand, so that the second half must cost nothing. */
const DIALS = 2000;

/** How often the page draws the dials at most, in milliseconds. It also draws what it looks up now and then. */
const DRAW_MS = 250;

/** What the page counts while it is watched. */
interface Drawn {
  draws: number;
}

// The first test, because it counts the gateway's dials.
test(
  'watching costs a bounded memory and a bounded number of draws, however many dials there are',
  { skip: skip || unlessSlow() },
  scoped(async (scope) => {
    const { gateway, programs } = await plane();
    const watched = await openConsole(scope, await browser(), gateway.program, programs);
    const { authority } = await echo(scope);
    const { page } = watched;
    await goTo(page, 'Dials');
    await page.getByText('No dial yet.').waitFor();
    const session = await page.context().newCDPSession(page);
    const used = async () => {
      await session.send('HeapProfiler.collectGarbage');
      const { usedSize } = await session.send('Runtime.getHeapUsage');
      return usedSize / 2 ** 20;
    };
    await page.evaluate(() => {
      const counted = globalThis as unknown as Drawn;
      counted.draws = 0;
      const observer = new MutationObserver(() => {
        counted.draws++;
      });
      observer.observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
    });
    const start = performance.now();
    const admin = adminOf(scope, gateway.program);
    const dials = async (count: number) => {
      for (let done = 0; done < count; done += 20) {
        const tunnels = await Promise.all(Array.from({ length: 20 }, () => dial(scope, gateway, 'connect', authority)));
        for (const tunnel of tunnels) tunnel.destroy();
      }
    };
    await dials(DIALS / 2);
    const before = await used();
    await dials(DIALS / 2);
    await until(async () => (await page.locator('tbody tr').count()) === 100, { what: 'a hundred rows' });
    const draws = await page.evaluate(() => (globalThis as unknown as Drawn).draws);
    const most = (2 * (performance.now() - start)) / DRAW_MS;
    assert.ok(draws < most, `${draws} draws, at most ${most.toFixed()}`);
    const after = await used();
    assert.ok(after < before + 4, `${before.toFixed(1)} MiB before, ${after.toFixed(1)} MiB after`);
    assert.ok((await page.locator('*').count()) < 5000);
    const { slots } = await admin.getHistory({});
    assert.equal(
      slots.reduce((sum, { dials: all }) => sum + all, 0),
      DIALS,
    );
    faultless(watched);
  }),
);

test(
  'names of an evil agent are text, whatever they hold, and do not stretch the page',
  { skip },
  scoped(async (scope) => {
    const { trust, gateway, hub, programs } = await plane();
    // Too long for the hub, which refuses it.
    await assert.rejects(rogueAgent(scope, trust, hub.agentPort, encodeURIComponent(LONG)));
    const admin = adminOf(scope, gateway.program);
    const held = async () => (await admin.listSessions({})).sessions[0];
    const { agentId, identifiers } = await until(held, { what: 'the session of the evil agent' });
    assert.deepEqual([agentId, identifiers?.host], [NAME, [LONG]]);
    const watched = await openConsole(scope, await browser(), gateway.program, programs);
    const { page } = watched;
    await dial(scope, gateway, 'connect', `${'x'.repeat(250)}.example:1`).catch(() => {});
    const { authority } = await echo(scope);
    await page.getByLabel('Find an agent or tenant').fill('<script>');
    await page.getByText(SCRIPT.slice(0, 64), { exact: false }).first().waitFor();
    for (const view of VIEWS) {
      await goTo(page, view);
      await page.getByRole('heading', { level: 2 }).first().waitFor();
      if (view === 'Why') {
        await page.getByLabel('Destination', { exact: true }).fill(authority);
        await page.getByRole('button', { name: 'Explain' }).click();
        await page
          .getByRole('cell', { name: SCRIPT.slice(0, 20) })
          .first()
          .waitFor();
      }
      const found = await page.evaluate(() => ({
        scripts: document.scripts.length,
        images: document.images.length,
        wide: document.documentElement.scrollWidth > innerWidth,
        longest: Math.max(...(document.body.innerText.match(/\S+/g) ?? []).map((word) => word.length)),
      }));
      assert.deepEqual(
        { ...found, longest: found.longest <= 500 },
        { scripts: 1, images: 0, wide: false, longest: true },
        view,
      );
    }
    faultless(watched);
  }),
);
