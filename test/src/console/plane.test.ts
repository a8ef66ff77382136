import assert from 'node:assert/strict';
import test from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { redisMissing } from '@isthmus/directory/testing/servers';
import type { Page } from 'playwright-core';
import {
  echo,
  eventually,
  freePort,
  type Scope,
  scoped,
  sharedByFile,
  split,
  tempDir,
  until,
} from '../harness/index.ts';
import { readRecords } from '../plane/audit-records.ts';
import { adminOf, askFirst, carries, closed, dial } from '../plane/dials.ts';
import { faultless, findsNothing, goTo, NO_BROWSER, openConsole, rowsOf, startBrowser } from './browser.ts';

const skip = NO_BROWSER || redisMissing();
const browser = sharedByFile(startBrowser);

/** The tests share it. The last two drain a hub and kill the other. */
const plane = sharedByFile(async (scope) => {
  const dir = await tempDir(scope);
  const gatewayFlags = { 'audit-log': `${dir}/audit.log`, 'tenants-dir': undefined };
  const { gateways, hubs } = await split(scope, { agents: 2, gatewayFlags, agentFlags: { 'session-count': 2 } });
  const [[gateway, other], [hub, drained]] = [gateways, hubs];
  if (!gateway || !other || !hub || !drained) throw new Error('no two gateways, or no two hubs');
  const programs = [...gateways, ...hubs].map(({ program }) => program);
  const admin = adminOf(scope, gateway.program);
  await until(async () => (await admin.listSessions({})).sessions.length === 4, { what: 'two sessions of each agent' });
  await askFirst(scope, programs);
  return { gateway, other, hub, drained, programs, admin, audit: `${dir}/audit.log` };
});

async function planeWithConsole(scope: Scope) {
  const shared = await plane();
  const watched = await openConsole(scope, await browser(), shared.gateway.program, shared.programs);
  return { ...shared, watched, page: watched.page };
}

/** Waits until a row of a table says something. */
async function says(page: Page, table: string, row: Readonly<Record<string, string>>, column: string, text: RegExp) {
  const [name, value] = Object.entries(row)[0] as [string, string];
  let found = '';
  const look = async () => {
    found = (await rowsOf(page, table)).find((each) => each[name] === value)?.[column] ?? '';
    return text.test(found);
  };
  await until(look, { what: () => `${text} in ${column} of ${value}, which is: ${found}` });
}

test(
  'the page shows what the RPC says: members, links, agents, dials, tunnels, the last hour',
  { skip },
  scoped(async (scope) => {
    const { gateway, other, programs, admin, watched, page } = await planeWithConsole(scope);
    const { authority } = await echo(scope);
    const refused = `127.0.0.1:${await freePort()}`;
    // While the browser starts, a hub may have been silent for too long.
    const linked = async () => (await gateway.program.value('isthmus_hub_links')) === 2;
    await until(linked, { what: 'links to both hubs' });
    const tunnel = await dial(scope, gateway, 'grpc', authority);
    await carries(tunnel, 'x'.repeat(2000));
    await assert.rejects(dial(scope, gateway, 'connect', refused));

    const { members, hubs } = await admin.listMembers({});
    const said = async () => {
      const statuses = await Promise.all(programs.map((program) => adminOf(scope, program).getStatus({})));
      return statuses
        .map(({ memberId, hubId, sessions, tunnels }) => {
          const held = hubId === '' ? '–' : `${sessions}`;
          return [memberId, '● ok', held, `${tunnels}`].join();
        })
        .sort();
    };
    const shown = async () => {
      const rows = await rowsOf(page, 'Members');
      return rows.map(({ Member, State, Sessions, Tunnels }) => [Member, State, Sessions, Tunnels].join()).sort();
    };
    await until(async () => isDeepStrictEqual(await shown(), await said()), { what: 'members as they say' });
    assert.deepEqual(
      (await rowsOf(page, 'Members')).map(({ Member }) => Member).sort(),
      members.map(({ memberId }) => memberId).sort(),
    );
    await page.getByText('The same as a table').click();
    const links = await rowsOf(page, 'Links from gateways to hubs');
    assert.equal(links.length, 2);
    const [{ Gateway = '' } = {}] = links;
    for (const { hubId } of hubs) await says(page, 'Links from gateways to hubs', { Gateway }, hubId, /up, \d/);
    await page.getByRole('heading', { name: '2 agents in 1 group, by tenant and zone' }).waitFor();
    await findsNothing(page);

    await goTo(page, 'Dials');
    await page.getByRole('button', { name: authority }).waitFor();
    const dials = async () => {
      const rows = await rowsOf(page, 'Dials');
      return rows.map(({ Destination, Result, Why }) => [
        Destination,
        Result?.replace(/^\S+ /, ''),
        Why?.split(':')[0],
      ]);
    };
    const expected = [
      [refused, 'failed', 'connection_refused'],
      [authority, 'opened', ''],
    ];
    await eventually(async () => assert.deepEqual(await dials(), expected));
    await page.getByRole('button', { name: authority }).click();
    const detail = page.getByRole('complementary');
    const phases = async () => (await detail.locator('figcaption li b').allInnerTexts()).join(' ');
    // On a busy machine, the gateway may have begun another attempt before the first one was answered.
    const whole = /^gateway attempt hub agent .*connect first byte$/;
    await eventually(async () => assert.match((await phases()).replaceAll(/(?<=attempt.*) attempt/g, ''), whole));
    assert.match(
      await detail.locator('code').innerText(),
      new RegExp(`^isthmus dial --agent=agent-\\d .* ${authority}$`),
    );
    // Its address shows it to whoever gets it.
    await page.reload();
    await detail.getByRole('link', { name: 'Its tunnel' }).click();
    await page.getByRole('heading', { name: '1 tunnel' }).waitFor();
    await page.goBack();
    await detail.waitFor();
    await page.getByLabel('failed only').check();
    await page.getByRole('button', { name: authority }).waitFor({ state: 'detached' });

    await goTo(page, 'Tunnels');
    await page.getByRole('heading', { name: '1 tunnel' }).waitFor();
    const [shownTunnel] = await rowsOf(page, 'Tunnels');
    const [known] = (await admin.listTunnels({})).tunnels;
    assert.deepEqual(
      [
        shownTunnel?.Destination,
        shownTunnel?.Agent,
        shownTunnel?.Hub,
        shownTunnel?.Up,
        shownTunnel?.Down,
        shownTunnel?.Dial,
      ],
      [known?.destination, known?.agentId, known?.hubId, '2.0 kB', '2.0 kB', known?.dialId],
    );

    // The whole plane, until a member is chosen.
    await carries(await dial(scope, other, 'connect', authority));
    await page.getByRole('heading', { name: '2 tunnels' }).waitFor();
    await page.getByLabel('Member').selectOption({ index: 2 });
    await page.getByRole('heading', { name: '1 tunnel' }).waitFor();

    await goTo(page, 'Time');
    await page.getByText('The same as a table, by the minute').click();
    const total = async (column: string) => {
      const minutes = await rowsOf(page, 'The last hour by the minute');
      return minutes.reduce((sum, row) => sum + Number(row[column]), 0);
    };
    const { slots } = await admin.getHistory({});
    const sums = [
      slots.reduce((sum, { dials: all }) => sum + all, 0),
      slots.reduce((sum, each) => sum + each.failures, 0),
    ];
    assert.deepEqual(sums, [2, 1]);
    await eventually(async () => assert.deepEqual([await total('Dials'), await total('Failures')], [3, 1]));
    faultless(watched);
  }),
);

test(
  'a tunnel is kicked, and an agent quarantined, with a confirmation and a reason that is audited',
  { skip },
  scoped(async (scope) => {
    const { gateway, admin, watched, page, audit } = await planeWithConsole(scope);
    const { authority } = await echo(scope);
    const tunnel = await dial(scope, gateway, 'connect', authority);
    await carries(tunnel);
    await goTo(page, 'Tunnels');
    const kick = page.getByRole('button', { name: `Kick the tunnel to ${authority}` });
    await kick.click();
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    const { tunnels } = await admin.listTunnels({});
    assert.equal(tunnels.filter(({ destination }) => destination === authority).length, 1);
    await kick.click();
    await page.getByRole('dialog').getByRole('textbox').fill('it is stuck');
    await page.getByRole('button', { name: 'Kick', exact: true }).click();
    await page.getByText(`Ended 1 tunnel to ${authority}`).waitFor();
    await closed(tunnel);

    await goTo(page, 'Actions');
    await page.getByLabel('Agent', { exact: true }).fill('agent-0');
    await page.getByRole('button', { name: 'Quarantine …' }).click();
    const act = page.getByRole('dialog').getByRole('button', { name: 'Quarantine' });
    await act.click();
    assert.ok(await page.getByRole('dialog').isVisible(), 'a quarantine without a reason');
    await page.getByRole('dialog').getByRole('textbox').fill('disk full');
    await act.click();
    // An agent may be without one of its sessions for a moment, here and below.
    await page.getByText(/agent-0 of tenant default takes no new dials; \d sessions? known here/).waitFor();
    const { agents } = await admin.listQuarantined({});
    assert.deepEqual(
      agents.map(({ agentId, reason }) => [agentId, reason]),
      [['agent-0', 'disk full']],
    );
    await goTo(page, 'Plane');
    await page.getByRole('cell', { name: 'in quarantine: disk full' }).waitFor();
    await goTo(page, 'Actions');
    await page.getByRole('button', { name: 'Lift the quarantine of agent-0' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Lift' }).click();
    await page.getByText('No agent is in quarantine.').waitFor();
    assert.deepEqual((await admin.listQuarantined({})).agents, []);
    await page.getByRole('button', { name: 'Dry run' }).click();
    await page.getByText(/^0 sessions would move, \d tunnels? would move or finish/).waitFor();
    assert.equal((await admin.getStatus({})).ready, true);
    const reasons = () => readRecords(audit).map((record) => JSON.stringify(record));
    await until(() => reasons().some((record) => record.includes('ended by an operator: it is stuck')), {
      what: 'the audit record of the tunnel, with the reason',
    });
    faultless(watched);
  }),
);

test(
  'a destination is explained as a picture, and dialled with its first byte',
  { skip },
  scoped(async (scope) => {
    const { admin, watched, page } = await planeWithConsole(scope);
    const { authority } = await echo(scope);
    await goTo(page, 'Why');
    await page.getByLabel('Destination', { exact: true }).fill(authority);
    await eventually(async () => {
      await page.getByRole('button', { name: 'Explain' }).click();
      await page.getByText(/^strategy default sends a dial to agent agent-\d/).waitFor();
      const { steps } = await admin.explain({ destination: authority });
      const candidates = await rowsOf(page, 'Sessions that default finds');
      assert.equal(candidates.length, steps[0]?.candidates.length);
      assert.equal(await page.locator('svg.ways .box').count(), 1 + 2 + 4);
    });
    await page.getByRole('button', { name: 'Dial it now' }).click();
    await page.getByText('The tunnel opened.').waitFor();
    await page.getByLabel('Destination', { exact: true }).fill('nowhere');
    await page.getByRole('button', { name: 'Explain' }).click();
    await page.getByRole('alert').waitFor();
    faultless(watched);
  }),
);

test(
  'a hub is drained after its dry run, from the page of a gateway',
  { skip },
  scoped(async (scope) => {
    const { drained: hub, watched, page } = await planeWithConsole(scope);
    const admin = adminOf(scope, hub.program);
    const { hubId } = await admin.getStatus({});
    await goTo(page, 'Actions');
    await page.getByLabel('Member').selectOption(hubId);
    await page.getByRole('heading', { name: `Drain ${hubId}` }).waitFor();
    assert.equal(await page.getByRole('button', { name: 'Drain …' }).count(), 0, 'a drain without its dry run');
    await eventually(async () => {
      await page.getByRole('button', { name: 'Dry run' }).click();
      const said = await page.getByText(/^\d sessions? would move, \d tunnels? would move or finish/).innerText();
      assert.match(said, /^2 sessions would move, 0 tunnels /);
      const moves = await rowsOf(page, 'Sessions that would move');
      assert.deepEqual(
        moves.map((row) => row['Sessions elsewhere']),
        ['1', '1'],
      );
    });
    await page.getByRole('button', { name: 'Drain …' }).click();
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    assert.equal((await admin.getStatus({})).ready, true);
    await page.getByRole('button', { name: 'Drain …' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Drain', exact: true }).click();
    await page.getByText(new RegExp(`${hubId} drains: \\d sessions? moves?, 0 tunnels finish`)).waitFor();
    await until(async () => (await admin.getStatus({})).sessions === 0, { what: 'agents to leave the hub' });
    await goTo(page, 'Plane');
    await says(page, 'Members', { Member: hubId }, 'State', /draining|drained/);
    faultless(watched);
  }),
);

test(
  'a hub that hangs, and one that is killed, are seen at once, and what to do',
  { skip },
  scoped(async (scope) => {
    const { hub, admin, watched, page } = await planeWithConsole(scope);
    const hungId = (await adminOf(scope, hub.program).getStatus({})).hubId;
    hub.program.signal('SIGSTOP');
    await says(page, 'Members', { Member: hungId }, 'State', /hung/);
    const gatewayId = (await admin.getStatus({})).memberId;
    await page.getByText('The same as a table').click();
    await says(page, 'Links from gateways to hubs', { Gateway: gatewayId }, hungId, /down/);
    await page
      .getByText(new RegExp(`links ${hungId}: .*cannot reach it`))
      .first()
      .waitFor();
    await page.getByText(/it hangs, is down, or cut off\. Look at its machine and its log, and restart it/).waitFor();
    hub.program.signal('SIGCONT');
    await says(page, 'Members', { Member: hungId }, 'State', /ok/);

    await hub.program.kill();
    // If the page is slow, the members have forgotten it by then.
    const state = async () => (await rowsOf(page, 'Members')).find(({ Member }) => Member === hungId)?.State;
    await until(async () => /hung/.test((await state()) ?? 'hung'), { what: 'the killed hub to be seen' });
    const links = async () => Object.keys((await rowsOf(page, 'Links from gateways to hubs'))[0] ?? {});
    await until(async () => !(await links()).includes(hungId), { what: 'the killed hub to be forgotten' });
    await page.getByText(new RegExp(`missing ${hungId}: hub at .* was lost .* and has not come back`)).waitFor();
    faultless(watched);
  }),
);
