import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import type { Browser } from 'playwright-core';
import { consoleOf, goTo, NO_BROWSER, startBrowser } from '../console/browser.ts';
import { eventually, type Program, Scope, scoped, unlessSlow } from '../harness/index.ts';
import { isthmus } from '../plane/operator.ts';
import type { Staged } from './incident.ts';
import { INCIDENTS } from './incidents.ts';

/** What a tool must say: the cause, and the remedy. */
type Says = readonly [cause: RegExp, remedy: RegExp];

interface Told {
  /** `isthmus status`, and the console's first view. */
  readonly status: Says;
  readonly check: Says;
  /** Unset where no dial fails. */
  readonly explain?: Says;
  readonly dial?: Says;
}

const REGISTRY: Says = [/Redis: .*READONLY this server is a replica/, /redis-cli REPLICAOF NO ONE/];
const HUNG: Says = [/hub-1: hub at \S+, was lost .* silent for 4\.75 s/, /hangs, .*restart it/];
const SILENT: Says = [
  /connection_timeout: .*(timeout|timed out)/,
  /a firewall or network policy .* drops packets .*, or the machine is down/,
];
const FULL: Says = [
  /tenant acme.* uses 20 of 20 tunnels at (gateway-0|this gateway)/,
  /limits\.tunnels in the tenant's file/,
];
const DISTRUST: Says = [
  /does it trust the authority of this certificate.*agent-2 \(for/,
  /--ca-cert must hold the CA of the hub's --cluster-cert/,
];
const LOST: Says = [/agent agent-2 served it, and has no session/, /isthmus check says whether hubs refuse it/];

const TOLD: Readonly<Record<string, Told>> = {
  'wrong CA at one agent': { status: DISTRUST, check: DISTRUST, explain: LOST, dial: LOST },
  'a hub that hangs': { status: HUNG, check: HUNG },
  'a destination that drops SYNs': { status: SILENT, check: SILENT, dial: SILENT },
  'Redis read-only': {
    status: REGISTRY,
    check: REGISTRY,
    explain: [/the registry does not do its work \(.*READONLY/, /check Redis, and --redis-url/],
    dial: [/the registry does not do its work \(.*READONLY/, /check Redis, and --redis-url/],
  },
  'a tenant at its limit': {
    status: FULL,
    check: FULL,
    explain: FULL,
    dial: [/has reached its limit tunnels of 20/, /raise limits\.tunnels in the tenant's file/],
  },
};

/** In the gate. What members find of the others, and what they advise, is also tested in libs/findings/src/judge.test.ts. */
const ALWAYS = ['wrong CA at one agent', 'Redis read-only'];

/** How often a command is run again, in milliseconds: members look every few seconds, and each run asks all of them. */
const ASK_EVERY = 1000;

/** Runs a command at the first gateway until it says what it must. */
async function says(program: Program, [cause, remedy]: Says, ...args: string[]): Promise<void> {
  await eventually(
    async () => {
      const { out, err } = await isthmus(program, ...args);
      assert.match(out, cause, `isthmus ${args.join(' ')}: ${err}`);
      assert.match(out, remedy, `isthmus ${args.join(' ')}`);
    },
    { every: ASK_EVERY },
  );
}

async function onThePage(browser: Browser, program: Program, { status: [cause, remedy] }: Told, staged: Staged) {
  const page = await browser.newPage();
  await page.goto(consoleOf(program));
  const findings = page.locator('.findings').first();
  await eventually(async () => {
    const text = (await findings.innerText()).replaceAll('\n', ' ');
    assert.match(text, cause);
    assert.match(text, remedy);
  });
  if (staged.destination !== undefined) {
    // The dials that fail, with the same destination.
    await goTo(page, 'Dials');
    await page.getByLabel('failed only').check();
    await page.getByRole('button', { name: staged.destination }).first().click();
    await page.getByRole('complementary').locator('.todo').waitFor();
  }
  await page.close();
}

describe('an operator who has not seen the script finds cause and remedy', { skip: redisMissing() }, () => {
  const scope = new Scope();
  let browser: Browser | undefined;
  before(async () => {
    if (!NO_BROWSER) browser = await startBrowser(scope);
  });
  after(() => scope[Symbol.asyncDispose]());

  for (const incident of INCIDENTS) {
    test(
      `of ${incident.name}: with the command line, and with the console`,
      { skip: !ALWAYS.includes(incident.name) && unlessSlow() },
      scoped(async (own) => {
        const told = TOLD[incident.name];
        assert.ok(told);
        const staged = await incident.stage(own, incident.fewest);
        const program = staged.members[0]?.program;
        assert.ok(program);
        assert.doesNotMatch(staged.symptom, told.status[0], 'the symptom says the cause');
        await says(program, told.status, 'status');
        await says(program, told.check, 'check', '--no-dials');
        const { destination = '', tenant } = staged;
        const whose = tenant === undefined ? [] : ['--tenant', tenant];
        if (told.explain) await says(program, told.explain, 'explain', destination, ...whose);
        if (told.dial) await says(program, told.dial, 'dial', destination, ...whose);
        if (browser) await onThePage(browser, program, told, staged);
      }),
    );
  }
});
