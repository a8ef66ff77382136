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
    /** Waits until the tunnel is in a state, and has moved more often than that. @returns how often */
    const shows = async (state: string, before: number) => {
      let found: unknown;
      const look = async () => {
        found = (await rowsOf(page, 'Tunnels'))[0];
        const { State, Moves } = found as Record<string, string>;
        return State === state && /^\d+$/.test(`${Moves}`) && Number(Moves) > before && { moves: Number(Moves) };
      };
      const what = () => `${state} after more than ${before} moves in ${JSON.stringify(found)}`;
      return (await until(look, { what })).moves;
    };
    const carrier = () =>
      until(
        async () => {
          const { tunnels } = await admin.listTunnels({});
          return hubs.find(({ id }) => id === tunnels[0]?.hubId);
        },
        { what: 'a hub that carries the tunnel' },
      );
    // On a busy machine, a hub may have been silent for so long that the tunnel has moved already.
    const early = await shows('attached', -1);
    await page
      .getByText(/^1 of 1 can outlive their hub: 0 of them wait for a way to their agent, \d+ moves? so far/)
      .waitFor();
    const first = await carrier();
    await first.kill();
    const moves = await shows('attached', early);
    await (await carrier()).kill();
    await shows('detached', moves - 1);
    await page.getByText(/: 1 of them wait for a way to their agent, \d+ moves? so far/).waitFor();
    await first.restart();
    await shows('attached', moves);
    await carries(tunnel, 'after two hubs');
    faultless(watched);
  }),
);
