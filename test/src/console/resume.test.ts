import assert from 'node:assert/strict';
import test from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import { eventually } from '@isthmus/runtime/testing';
import { echo, scoped, until } from '../harness/index.ts';
import { adminOf, carries, dial } from '../plane/dials.ts';
import { hubPlane } from '../plane/hub-plane.ts';
import { faultless, goTo, NO_BROWSER, openConsole, rowsOf, startBrowser } from './browser.ts';

test(
  'the page shows which tunnels outlive their hub, how often they moved, and which wait for another one',
  { skip: NO_BROWSER || redisMissing(), timeout: 300_000 },
  scoped(async (scope) => {
    const plane = await hubPlane(scope, { hubs: 2, gatewayFlags: { 'resume-timeout': '5m' } });
    const { gateway, hubs } = plane;
    const members = [gateway, ...hubs].map(({ program }) => program);
    const admin = adminOf(scope, gateway.program);
    const watched = await openConsole(scope, await startBrowser(scope), gateway.program, members);
    const { page } = watched;
    const { authority } = await echo(scope);
    // While the browser starts, a hub may have been silent for too long.
    const tunnel = await eventually(() => dial(scope, plane.ways, 'connect', authority));
    await carries(tunnel);
    await goTo(page, 'Tunnels');
    const shows = async (state: string, moves: number) => {
      let found: unknown;
      const look = async () => {
        found = (await rowsOf(page, 'Tunnels'))[0];
        const { State, Moves } = found as Record<string, string>;
        return State === state && Moves === `${moves}`;
      };
      await until(look, { what: () => `${state} after ${moves} moves in ${JSON.stringify(found)}` });
    };
    const carrier = async () => {
      const { tunnels } = await admin.listTunnels({});
      const found = hubs.find(({ id }) => id === tunnels[0]?.hubId);
      assert.ok(found);
      return found;
    };
    await shows('attached', 0);
    await page.getByText('1 of 1 can outlive their hub: 0 of them wait for a way to their agent, 0 moves').waitFor();
    const first = await carrier();
    await first.kill();
    await shows('attached', 1);
    await (await carrier()).kill();
    await shows('detached', 1);
    await page.getByText('1 of them wait for a way to their agent, 1 move so far').waitFor();
    await first.restart();
    await shows('attached', 2);
    await carries(tunnel, 'after two hubs');
    faultless(watched);
  }),
);
