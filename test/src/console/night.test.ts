import assert from 'node:assert/strict';
import test from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import type { BrowserContextOptions, Page } from 'playwright-core';
import { freePort, type Scope, scoped, sharedByFile, split, until } from '../harness/index.ts';
import { askFirst, dial } from '../plane/dials.ts';
import { answering, faultless, findsNothing, goTo, NO_BROWSER, openConsole, startBrowser } from './browser.ts';

/** What somebody sees who was woken up: nothing that is old or doubled, nothing in colour alone, nothing cut. */

const skip = NO_BROWSER || redisMissing();
const browser = sharedByFile(startBrowser);

const plane = sharedByFile(async (scope) => {
  const { gateways, hubs } = await split(scope, { agents: 2, agentFlags: { 'session-count': 2 } });
  const [gateway, other] = gateways;
  if (!gateway || !other) throw new Error('no two gateways');
  const programs = [...gateways, ...hubs].map(({ program }) => program);
  await askFirst(scope, programs);
  return { gateway, other, programs };
});

const PHONE = { viewport: { width: 390, height: 844 } };

async function opened(scope: Scope, options: BrowserContextOptions = {}) {
  const shared = await plane();
  const watched = await openConsole(scope, await browser(), shared.gateway.program, shared.programs, options);
  return { ...shared, watched, page: watched.page };
}

/** Agents of one tenant and zone, one of each state that sessions can have, and many that are well. */
async function agentsOfEachState(page: Page, all: number): Promise<void> {
  const hubs = (await page.locator('svg.links .box text:first-of-type').allInnerTexts()).slice(-2);
  const sessions = Array.from({ length: all }, (_, n) =>
    (n === 0 ? ['h1'] : ['h1', 'h2']).map((hubId) => ({
      ...{ sessionId: `${n} ${hubId}`, tenant: 'default', agentId: `agent-${n}`, hubId, protocol: 1, remote: '' },
      ...{ sinceMs: 1, draining: n === 1, quarantined: n === 2, quarantineReason: '', drainingSinceMs: 0, tunnels: 0 },
      suspected: n === 3,
      identifiers: { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false },
    })),
  ).flat();
  assert.equal(hubs.length, 2);
  await answering(page, 'ListSessions', { sessions });
  await page.getByRole('heading', { name: `${all.toLocaleString('en')} agents in 1 group` }).waitFor();
}

/** A view's title comes after what is in it. */
async function titled(page: Page, text: RegExp) {
  let title = '';
  const look = async () => {
    title = await page.title();
    return text.test(title);
  };
  await until(look, { what: () => `${text} in the title, which is ${title}` });
}

test(
  'the member that the page asks hangs: in every view that is the first thing, in red, and all below is grey and of then',
  { skip },
  scoped(async (scope) => {
    const { gateway, watched, page } = await opened(scope);
    await findsNothing(page);
    gateway.program.signal('SIGSTOP');
    scope.defer(() => gateway.program.signal('SIGCONT'));
    const alert = page.getByRole('alert').filter({ hasText: /does not answer/ });
    await alert.getByText(/: everything below is as of \d\d:\d\d:\d\d/).waitFor();
    await page.getByText(/(Nothing|What) was wrong at \d\d:\d\d:\d\d/).waitFor();
    assert.equal(await page.getByText(/(Nothing|What) is wrong/).count(), 0);
    assert.equal(await page.getByText(/live, \d/).count(), 0);
    const colours = () =>
      page.evaluate(() => {
        const colourOf = (element: Element) => getComputedStyle(element).color;
        const [alarm] = document.querySelectorAll('[role=alert] .state');
        const below = [...document.querySelectorAll('main, main *')].filter(({ tagName }) => tagName !== 'OPTION');
        return { alarm: alarm && colourOf(alarm), below: [...new Set(below.map(colourOf))] };
      });
    for (const view of ['Plane', 'Dials', 'Tunnels', 'Why', 'Time', 'Actions']) {
      await goTo(page, view);
      await titled(page, new RegExp(`does not answer, as of \\d\\d:\\d\\d:\\d\\d: ${view}, `));
      await page.locator('main h2').first().waitFor();
      const { alarm, below } = await colours();
      assert.ok(alarm !== undefined && !below.includes(alarm), `${view} is as red as its alarm`);
      assert.equal(below.length, 1, `${view} has the colours ${below}`);
      const alarmed = await page.evaluate(() => {
        const [first] = document.querySelectorAll('[role=alert]');
        const [main] = document.querySelectorAll('main');
        return first && main && first.getBoundingClientRect().bottom <= main.getBoundingClientRect().top;
      });
      assert.ok(alarmed, `the alarm does not stand above ${view}`);
    }
    gateway.program.signal('SIGCONT');
    await page
      .getByText(/live, \d/)
      .first()
      .waitFor();
    await alert.waitFor({ state: 'detached' });
    await titled(page, /^(?!.*does not answer)/);
    faultless(watched);
  }),
);

test(
  'the marks of agents differ in their form, at every size, and the legend has the same ones',
  { skip },
  scoped(async (scope) => {
    const { page } = await opened(scope);
    for (const all of [5, 10_000]) {
      await agentsOfEachState(page, all);
      const side = all === 5 ? 16 : 7;
      /** Of the first agents, which are the worst ones: which of their pixels are drawn at all. */
      const forms = () =>
        page.locator('.cells canvas').evaluate((element, width) => {
          const canvas = element as HTMLCanvasElement;
          const context = canvas.getContext('2d');
          return [0, 1, 2, 3, 4].map((cell) => {
            const data = context?.getImageData(cell * width, 0, width, width).data ?? [];
            return [...data].filter((_, index) => index % 4 === 3).map((alpha) => alpha > 127);
          });
        }, side);
      const drawn = async () => (await forms()).every((form) => form.includes(true)) && forms();
      const found = await until(drawn, { what: `marks of ${all} agents` });
      for (const [index, form] of found.entries())
        for (const other of found.slice(index + 1)) {
          const apart = form.filter((pixel, at) => pixel !== other[at]).length;
          assert.ok(apart >= side, `${apart} of ${side * side} pixels tell two marks apart`);
        }
    }
    const legend = await page.locator('.legend path').evaluateAll((all) => all.map((path) => path.getAttribute('d')));
    assert.equal(new Set(legend).size, 6);
  }),
);

test(
  'labels of links stand beside the lines, and the picture says what they mean',
  { skip },
  scoped(async (scope) => {
    const { page } = await opened(scope);
    await page.getByText('A line is a link').waitFor();
    const covered = () =>
      page.locator('svg.links').evaluate((svg) => {
        const lines = [...svg.querySelectorAll('line')].map(({ x1, y1, x2, y2 }) => {
          return [x1, y1, x2, y2].map(({ baseVal }) => baseVal.value) as [number, number, number, number];
        });
        const labels = [...svg.querySelectorAll<SVGTextElement>('.label')].map((text) => text.getBBox());
        const under = labels.filter(({ x, y, width, height }) =>
          lines.some(([x1, y1, x2, y2]) =>
            Array.from({ length: 1001 }, (_, step) => step / 1000).some((at) => {
              const [px, py] = [x1 + (x2 - x1) * at, y1 + (y2 - y1) * at];
              return px > x && px < x + width && py > y && py < y + height;
            }),
          ),
        );
        return { lines: lines.length, labels: labels.length, under: under.length };
      });
    const labelled = async () => {
      const seen = await covered();
      return seen.labels === 4 && seen;
    };
    const drawn = await until(labelled, { what: 'four labels' });
    assert.deepEqual(drawn, { lines: 4, labels: 4, under: 0 });
  }),
);

test(
  'the numbers of an axis are whole, however large',
  { skip },
  scoped(async (scope) => {
    const { page } = await opened(scope);
    await page.evaluate(() => {
      const { fillText } = CanvasRenderingContext2D.prototype;
      const drawn: [text: string, left: number][] = [];
      Object.assign(globalThis, { drawn });
      CanvasRenderingContext2D.prototype.fillText = function (text: string, x: number, y: number) {
        const { width } = this.measureText(text);
        const at = this.getTransform().transformPoint({ x, y });
        drawn.push([text, at.x - (this.textAlign === 'right' ? width : width / 2)]);
        fillText.call(this, text, x, y);
      };
    });
    const now = Date.now();
    const slots = Array.from({ length: 60 }, (_, index) => ({
      ...{ startMs: now - (60 - index) * 10_000, dials: 900_000, failures: 0 },
      ...{ p50Ms: 4000, p99Ms: 6000, sessions: 24_000, tunnels: 1_500_000 },
    }));
    await answering(page, 'GetHistory', { slotMs: 10_000, slots, cuts: [], refusals: [] });
    await goTo(page, 'Time');
    type Drawn = { readonly drawn: readonly [string, number][] };
    const drawn = () => page.evaluate(() => (globalThis as unknown as Drawn).drawn);
    const has = (text: string) => async () => (await drawn()).some(([each]) => each === text);
    await until(has('6,000 ms'), { what: 'the number 6,000 ms' });
    await until(has('3,000,000'), { what: 'the number of tunnels' });
    assert.deepEqual(
      (await drawn()).filter(([, left]) => left < 0),
      [],
    );
  }),
);

test(
  'on a phone a dial takes two lines, and what is left out stands in its detail; rows align at the top',
  { skip },
  scoped(async (scope) => {
    const { gateway, other, page, watched } = await opened(scope, PHONE);
    const refused = `127.0.0.1:${await freePort()}`;
    for (const each of [gateway, other]) await assert.rejects(dial(scope, each, 'connect', refused));
    await goTo(page, 'Dials');
    const dials = page.getByRole('table', { name: 'Dials' }).getByRole('row');
    await until(async () => (await dials.count()) === 2, { what: 'both dials' });
    const tall = await dials.evaluateAll((rows) =>
      rows.map((row) => row.getBoundingClientRect().height / Number.parseFloat(getComputedStyle(row).lineHeight)),
    );
    assert.ok(
      tall.every((lines) => lines < 3),
      `dials of ${tall} lines`,
    );
    const seen = await dials.first().innerText();
    for (const text of [/\d\d:\d\d:\d\d/, /failed/, /ms/, new RegExp(refused), /agent-\d/]) assert.match(seen, text);
    await dials.first().getByRole('button').click();
    await page
      .getByRole('complementary')
      .getByText(/through agent agent-\d/)
      .waitFor();
    const heading = page.getByRole('complementary').getByRole('heading').first();
    assert.ok(
      await heading.evaluate((detail) => detail.getBoundingClientRect().top >= 0),
      'its detail is out of sight',
    );
    faultless(watched);

    const wide = (await opened(scope)).page;
    await agentsOfEachState(wide, 60);
    const uneven = await wide.locator('tbody tr').evaluateAll((rows) =>
      rows.flatMap((row) => {
        const tops = [...row.querySelectorAll('td')].flatMap((cell) => {
          const range = document.createRange();
          range.selectNodeContents(cell);
          const [first] = range.getClientRects();
          return first === undefined || first.height === 0 ? [] : [first.top];
        });
        return Math.max(...tops) - Math.min(...tops) > 3 ? [(row as HTMLElement).innerText] : [];
      }),
    );
    assert.deepEqual(uneven, []);
  }),
);

test(
  'a failure that two gateways saw is one finding, and what happened no more fades',
  { skip },
  scoped(async (scope) => {
    const { gateway, other, page } = await opened(scope);
    const refused = `127.0.0.1:${await freePort()}`;
    for (const each of [gateway, other])
      for (let times = 0; times < 6; times++) await assert.rejects(dial(scope, each, 'connect', refused));
    const about = page.locator('.findings li').filter({ hasText: `callers ${refused}` });
    await about.filter({ hasText: '12 dials failed' }).waitFor();
    assert.equal(await about.count(), 1);
    const now = Date.now();
    const destination = '10.0.0.8:443';
    const failure = { tenant: 'default', destination, code: 'dns_error', text: 'no such name', count: 3 };
    const failing = [{ ...failure, lastMs: now - 1_800_000, agents: [], agentCount: 0 }];
    await answering(page, 'GetStatus', (status) => ({ ...status, nowMs: now, failing }));
    const old = page.locator('.findings li').filter({ hasText: '10.0.0.8:443' });
    await old.waitFor();
    assert.equal(await old.getAttribute('class'), 'old');
  }),
);
