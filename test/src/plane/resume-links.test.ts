import assert from 'node:assert/strict';
import test from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import { echo, type LogLine, scoped, until } from '../harness/index.ts';
import { carries, closed, dial } from './dials.ts';
import { hubPlane, linesFromNow, sharedHubPlane } from './hub-plane.ts';

const skip = redisMissing();

const plane = sharedHubPlane({ hubs: 2, relayed: true });

test(
  'an agent that has another address from now on keeps its tunnels',
  { skip, timeout: 300_000 },
  scoped(async (scope) => {
    const all = await plane();
    const said = linesFromNow(all.gateway);
    const destination = await echo(scope);
    const tunnel = await dial(scope, all.ways, 'connect', destination.authority);
    await carries(tunnel, 'before');
    // Neither side hears of the other any more: nobody closes or resets anything.
    for (const { agent } of all.relays) agent.strand();
    await carries(tunnel, 'after');
    assert.equal(destination.open, 1);
    assert.deepEqual(
      said('tunnel closed').filter(({ cut }) => cut),
      [],
    );
    // Moved, if it was tried through a new session before the old one was ended.
    const gone = () => said('tunnel resumed').length + said('tunnel moved').length > 0;
    await until(gone, { what: 'a line about a tunnel that goes on' });
    tunnel.destroy();
  }),
);

test(
  'the tunnels of a gateway that has lost its way to all hubs wait, and go on when there is one',
  { skip, timeout: 300_000 },
  scoped(async (scope) => {
    const all = await plane();
    const said = linesFromNow(all.gateway);
    const destination = await echo(scope);
    const tunnel = await dial(scope, all.ways, 'connect', destination.authority);
    await carries(tunnel, 'before');
    for (const { peer } of all.relays) {
      peer.refuse();
      peer.strand();
    }
    const detached = async () => (await all.gateway.tunnels())[0]?.resume?.attached === false;
    await until(detached, { what: 'a tunnel that waits' });
    assert.equal(destination.open, 1);
    for (const { peer } of all.relays) peer.accept();
    await carries(tunnel, 'after');
    assert.deepEqual(
      said('tunnel closed').filter(({ cut }) => cut),
      [],
    );
    tunnel.destroy();
  }),
);

test(
  'a tunnel that has found no way within --resume-timeout ends, with the reason of its loss, at both ends',
  { skip, timeout: 300_000 },
  scoped(async (scope) => {
    const flags = { 'resume-timeout': '1s' };
    const all = await hubPlane(scope, { hubs: 2, relayed: true, gatewayFlags: flags, agentFlags: { ...flags, v: 5 } });
    const destination = await echo(scope);
    const tunnel = await dial(scope, all.ways, 'connect', destination.authority);
    await carries(tunnel, 'before');
    for (const { peer } of all.relays) {
      peer.refuse();
      peer.reset();
    }
    await closed(tunnel);
    await until(() => destination.open === 0, { what: 'the end at the destination' });
    const isEnd = ({ cut, text }: LogLine) => cut === 'path' && /^hub hub-[12]: /.test(String(text));
    await all.gateway.program.waitForLog(isEnd, { what: 'a tunnel that was cut for the loss of its hub' });
  }),
);
