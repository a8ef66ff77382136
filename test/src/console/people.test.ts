import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import test from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import type { Page } from 'playwright-core';
import { echo, freePort, SLOW_TESTS, scoped, sharedByFile, split, until } from '../harness/index.ts';
import { keepDialling } from '../incidents/plane.ts';
import { adminOf, askFirst, carries, dial } from '../plane/dials.ts';
import { answering, faultless, goTo, NO_BROWSER, openConsole, smallConsole, startBrowser } from './browser.ts';

const skip = NO_BROWSER || redisMissing();
const browser = sharedByFile(startBrowser);

/** The first two tests share it. One of its hubs has the widest name that is shown whole: names are column heads, too. */
const plane = sharedByFile(async (scope) => {
  const hubFlags = (index: number) => (index === 0 ? { 'server-id': 'W'.repeat(40) } : {});
  const { gateways, hubs } = await split(scope, { agents: 2, hubFlags });
  const [gateway] = gateways;
  if (!gateway) throw new Error('no gateway');
  const programs = [...gateways, ...hubs].map(({ program }) => program);
  await askFirst(scope, programs);
  return { gateway, programs };
});

const VIEWS = ['Plane', 'Dials', 'Tunnels', 'Why', 'Time', 'Actions'];
const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

interface Violation {
  readonly id: string;
  readonly nodes: readonly { readonly html: string; readonly failureSummary?: string }[];
}

/** Chooses rules of axe. */
interface Rules {
  readonly runOnly?: readonly string[];
}

/** Returns what axe finds on a page as it is now. */
async function axe(page: Page, rules: Rules): Promise<string[]> {
  const violations = await page.evaluate(async (chosen) => {
    const { axe: tool } = globalThis as unknown as {
      axe: { run(rules: Rules): Promise<{ violations: Violation[] }> };
    };
    return (await tool.run(chosen)).violations;
  }, rules);
  return violations.flatMap(({ id, nodes }) =>
    nodes.map((node) => `${id}: ${node.html.slice(0, 200)} ${node.failureSummary}`),
  );
}

/** By all rules in light. What is not about colours is the same in dark, and only slow runs look at it again. */
const SCHEMES: readonly (readonly ['light' | 'dark', Rules])[] = [
  ['light', {}],
  ['dark', SLOW_TESTS ? {} : { runOnly: ['cat.color'] }],
];

/** Asserts that axe finds nothing in a page, in light and in dark. */
async function accessible(page: Page, what: string): Promise<void> {
  for (const [colorScheme, rules] of SCHEMES) {
    await page.emulateMedia({ colorScheme });
    assert.deepEqual(await axe(page, rules), [], `${what}, ${colorScheme}`);
  }
}

/** The gate sees the smallest. */
const SIZES = [
  { width: 360, height: 740 },
  ...(SLOW_TESTS
    ? [
        { width: 1280, height: 900 },
        { width: 3840, height: 2160 },
      ]
    : []),
] as const;

test(
  'axe finds nothing in any view, in light and dark, on a phone and on a wall, and no view is wider than its window',
  { skip },
  scoped(async (scope) => {
    const { gateway, programs } = await plane();
    const { authority } = await echo(scope);
    await assert.rejects(dial(scope, gateway, 'connect', `127.0.0.1:${await freePort()}`));
    const admin = adminOf(scope, gateway.program);
    await admin.quarantine({ agent: { tenant: '', agentId: 'agent-1' }, reason: 'a test' });
    for (const viewport of SIZES) {
      const { width } = viewport;
      const options = { viewport, bypassCSP: true };
      const watched = await openConsole(scope, await browser(), gateway.program, programs, options);
      const { page } = watched;
      // For each size: on a busy machine a link may be lost between two, and its tunnels with it.
      await carries(await dial(scope, gateway, 'connect', authority));
      await page.addScriptTag({ path: AXE });
      for (const view of VIEWS) {
        await goTo(page, view);
        await page.getByRole('heading', { level: 2 }).first().waitFor();
        if (view === 'Dials') {
          await page.getByRole('button', { name: authority }).first().click();
          await page.getByRole('complementary').waitFor();
        }
        if (view === 'Why') {
          await page.getByLabel('Destination', { exact: true }).fill(authority);
          await page.getByRole('button', { name: 'Explain' }).click();
          await page.getByText('takes it').waitFor();
        }
        if (view === 'Time') await page.getByText('The same as a table, by the minute').click();
        if (view === 'Tunnels') {
          await page.getByRole('button', { name: /^Kick/ }).first().click();
          await page.getByRole('dialog').waitFor();
          await accessible(page, `the dialog, ${width}`);
          await page.keyboard.press('Escape');
          await page.getByRole('dialog').waitFor({ state: 'detached' });
        }
        await accessible(page, `${view}, ${width}`);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${view} is ${wide} pixels wider than ${width}`);
        const cut = await page
          .locator('.scroll')
          .evaluateAll((tables) =>
            tables
              .filter(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth)
              .map(({ ariaLabel }) => ariaLabel),
          );
        assert.deepEqual(cut, [], `tables of ${view} that do not fit into ${width}`);
      }
      faultless(watched);
      await page.context().close();
    }
  }),
);

test(
  'the keyboard alone reaches every view, opens a dial, and confirms a kick',
  { skip },
  scoped(async (scope) => {
    const { gateway, programs } = await plane();
    const watched = await openConsole(scope, await browser(), gateway.program, programs);
    const { page } = watched;
    const { authority } = await echo(scope);
    const admin = adminOf(scope, gateway.program);
    await until(async () => (await admin.listTunnels({})).tunnels.length === 0, { what: 'the end of earlier tunnels' });
    const tunnel = await dial(scope, gateway, 'connect', authority);
    await carries(tunnel);
    const tabTo = async (name: RegExp) => {
      const focused = () =>
        page.evaluate(
          () =>
            (document.activeElement as HTMLElement | null)?.ariaLabel ??
            (document.activeElement as HTMLElement | null)?.innerText ??
            '',
        );
      for (let step = 0; step < 60; step++) {
        await page.keyboard.press('Tab');
        if (name.test(await focused())) return;
      }
      assert.fail(`Tab does not reach ${name}`);
    };
    await tabTo(/^Dials$/);
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: authority }).waitFor();
    await tabTo(new RegExp(`^${authority}$`));
    await page.keyboard.press('Enter');
    await page.getByRole('complementary').waitFor();
    await page.reload();
    await page.getByRole('heading', { level: 2 }).first().waitFor();
    await tabTo(/^Tunnels$/);
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: /^Kick/ }).waitFor();
    await tabTo(/^Kick the tunnel/);
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.type('by keyboard');
    await page.keyboard.press('Enter');
    await page.getByText(/^Ended 1 tunnel/).waitFor();
    await until(() => tunnel.destroyed || tunnel.readableEnded, { what: 'the end of the tunnel' });
    faultless(watched);
  }),
);

test(
  'ten thousand agents are drawn on few elements, and a search finds one of them',
  { skip },
  scoped(async (scope) => {
    const { watched } = await smallConsole(scope, await browser());
    const { page } = watched;
    const sessions = Array.from({ length: 10_000 }, (_, n) => ({
      ...{
        sessionId: `s${n}`,
        tenant: `tenant-${n % 20}`,
        agentId: `agent-${n}`,
        hubId: 'hub',
        protocol: 1,
        remote: '',
      },
      ...{ sinceMs: 1, draining: n === 5000, quarantined: false, quarantineReason: '', tunnels: 0 },
      identifiers: { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false },
    }));
    await answering(page, 'ListSessions', { sessions });
    await page.getByRole('heading', { name: '10,000 agents in 20 groups' }).waitFor();
    assert.equal(await page.locator('canvas').count(), 20);
    assert.ok((await page.locator('*').count()) < 1500);
    await page.getByLabel('Find an agent or tenant').fill('agent-7777');
    await page.getByRole('cell', { name: 'agent-7777' }).waitFor();
    await page.getByLabel('Find an agent or tenant').fill('');
    await page.getByRole('cell', { name: 'agent-5000' }).waitFor();
    faultless(watched);
  }),
);

test(
  'a press that lasts while dials come opens the dial that it began on',
  { skip },
  scoped(async (scope) => {
    const { gateway, watched } = await smallConsole(scope, await browser());
    const { page } = watched;
    const { authority } = await echo(scope);
    keepDialling(scope, gateway, authority);
    await goTo(page, 'Dials');
    const rows = page.getByRole('button', { name: authority });
    await rows.nth(2).waitFor();
    const before = await rows.count();
    // Several dials come meanwhile.
    await rows.first().click({ delay: 1000 });
    await page.getByRole('complementary').waitFor();
    await until(async () => (await rows.count()) > before, { what: 'the page to draw dials again' });
    faultless(watched);
  }),
);

test(
  'a tenant is found with what it is made of, and what is wrong with one is said without a search',
  { skip },
  scoped(async (scope) => {
    const { watched } = await smallConsole(scope, await browser());
    const { page } = watched;
    const tenant = (name: string, source: string) => ({
      ...{ name, source, file: `${name}.yaml`, agents: 1, sessions: 1, tunnels: 0, pendingDials: 0, state: 'a' },
      ...{ callers: [], use: [], certificates: [], apiServerNames: [] },
    });
    const message = 'there is no secret hoster/new-ca yet';
    await answering(page, 'ListTenants', {
      configured: true,
      unopened: [],
      tenants: [tenant('acme', 'Cluster hoster/acme'), tenant('beta', '')],
      problems: [{ file: 'Cluster hoster/new', line: 0, column: 0, message, kept: '' }],
    });
    const row = page.getByRole('region', { name: 'Tenants with something wrong' }).getByRole('row');
    await row.filter({ hasText: 'Cluster hoster/new' }).filter({ hasText: message }).waitFor();
    await page.getByLabel('Find an agent or tenant').fill('ACME');
    const found = page.getByRole('region', { name: 'Tenants found' }).getByRole('row');
    await found.filter({ hasText: 'Cluster hoster/acme' }).waitFor();
    assert.equal(await found.count(), 2);
    faultless(watched);
  }),
);
