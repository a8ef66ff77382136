/// <reference lib="dom" />
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { DEADLINE_MS, type Front, onDeno, type Program, type Scope, split, until } from '../harness/index.ts';

/** The names of Debian, of other distributions, and of Google's own package. */
const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];

const found = NAMES.find((name) => spawnSync(name, ['--version']).status === 0);

/** The `skip` option of a test that needs a browser. */
export const NO_BROWSER: string | false = onDeno
  ? 'the driver of the browser runs on Node'
  : found === undefined && 'chromium is not installed: apt-get install chromium';

/** Starts Chromium. Its sandbox refuses root, which runs the tests in containers. */
export async function startBrowser(scope: Scope): Promise<Browser> {
  const { chromium } = await import('playwright-core');
  const args = ['--disable-dev-shm-usage', '--disable-gpu', ...(process.getuid?.() === 0 ? ['--no-sandbox'] : [])];
  const path = spawnSync('which', [found ?? ''])
    .stdout.toString()
    .trim();
  const browser = await chromium.launch({ executablePath: path, args });
  scope.defer(() => browser.close());
  return browser;
}

/** A page of the console, and everything that a page must not do. */
export interface Watched {
  readonly page: Page;
  /** Errors, violations of the policy, and requests to anything but members. */
  readonly faults: string[];
}

export function consoleOf({ adminPort }: Program): string {
  return `http://127.0.0.1:${adminPort}/console/`;
}

/** Opens a member's console in a context of its own. @param members whose admin ports the page may ask */
export async function openConsole(
  scope: Scope,
  browser: Browser,
  member: Program,
  members: readonly Program[],
  options: BrowserContextOptions = {},
): Promise<Watched> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  scope.defer(() => context.close());
  context.setDefaultTimeout(DEADLINE_MS);
  const page = await context.newPage();
  const faults: string[] = [];
  page.on('pageerror', (error) => faults.push(`error: ${error.message}`));
  page.on('console', (message) => {
    // A member that was killed or stopped cannot be reached, and Chromium says so.
    if (message.type() === 'error' && !/net::ERR_|Failed to load resource/.test(message.text()))
      faults.push(message.text());
  });
  page.on('dialog', (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  const own = members.map(({ adminPort }) => `127.0.0.1:${adminPort}`);
  page.on('request', (request) => {
    if (!own.includes(new URL(request.url()).host)) faults.push(`asked ${request.url()}`);
  });
  await page.goto(consoleOf(member));
  await page
    .getByText(/live, \d/)
    .first()
    .waitFor();
  return { page, faults };
}

interface SmallConsole {
  readonly gateway: Front;
  readonly programs: readonly Program[];
  readonly watched: Watched;
}

/** Starts a gateway, a hub and an agent, and opens the gateway's console. */
export async function smallConsole(scope: Scope, browser: Browser): Promise<SmallConsole> {
  const { gateways, hubs } = await split(scope, { gateways: 1, hubs: 1 });
  const [gateway] = gateways;
  if (!gateway) throw new Error('no gateway');
  const programs = [...gateways, ...hubs].map(({ program }) => program);
  return { gateway, programs, watched: await openConsole(scope, browser, gateway.program, programs) };
}

/** Goes to a view by its link. Until the page shows it, what is looked for by a name may be the view before. */
export async function goTo(page: Page, view: string): Promise<void> {
  const link = page.getByRole('navigation').getByRole('link', { name: view, exact: true });
  await link.click();
  await link.and(page.locator('[aria-current=page]')).waitFor();
}

/** Returns the texts of a table's cells, by the names of its columns. Asks the page once: tests ask often, and a page may have many cells. */
export async function rowsOf(page: Page, title: string): Promise<Record<string, string>[]> {
  const table = page.getByRole('table', { name: title, exact: true });
  return table.evaluateAll((tables) => {
    const textsIn = (where: Element, selector: string) =>
      [...where.querySelectorAll<HTMLElement>(selector)].map(({ innerText }) => innerText);
    return tables.flatMap((each) => {
      const names = textsIn(each, 'thead th');
      return [...each.querySelectorAll('tbody tr')].map((row) => {
        const cells = textsIn(row, 'td');
        return Object.fromEntries(names.map((name, index) => [name, (cells[index] ?? '').trim()]));
      });
    });
  });
}

/** Waits until the page finds nothing wrong. On a slow machine, an agent's first byte may have been late, which is a refusal of the last five minutes. */
export async function findsNothing(page: Page): Promise<void> {
  let found: readonly string[] = [];
  const isWell = async () => {
    found = await page.locator('.findings li b').allInnerTexts();
    return (await page.getByText('Looking …').count()) === 0 && found.every((check) => check === 'refusals');
  };
  await until(isWell, { what: () => `nothing to be wrong; the page finds ${found.join(', ')}` });
}

export function faultless({ faults }: Watched): void {
  assert.deepEqual(faults, []);
}

interface Line {
  readonly member: object;
  readonly answer?: object;
}

/** Answers the page's questions of a method by itself. @param answer or what to make of the real one */
export async function answering(
  page: Page,
  method: string,
  answer: object | ((real: object) => object),
): Promise<void> {
  // Made once: the page asks again and again, and gives up an answer that takes 8 s.
  const text = JSON.stringify(answer);
  await page.route('**/ask', async (route) => {
    const asked = route.request().postDataJSON() as { readonly method: string };
    if (asked.method !== method) return route.fallback();
    // Who answers is as it is.
    const lines = (await (await route.fetch()).text()).split('\n').filter((line) => line !== '');
    const body = lines.map((line) => {
      const { member, answer: real = {} } = JSON.parse(line) as Line;
      const said = typeof answer === 'function' ? JSON.stringify(answer(real)) : text;
      return `{"member":${JSON.stringify(member)},"answer":${said}}\n`;
    });
    return route.fulfill({ contentType: 'application/x-ndjson', body: body.join('') });
  });
}
