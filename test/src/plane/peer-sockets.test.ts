import assert from 'node:assert/strict';
import { existsSync, mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import test from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import { echo, type Member, scoped, tempDir, until } from '../harness/index.ts';
import { carries, dial, PROTOCOLS } from './dials.ts';
import { hubPlane, linesFromNow, wholeAgain } from './hub-plane.ts';

test(
  'gateway and hubs on one machine are linked over unix sockets, and a tunnel outlives a hub that is killed there',
  { skip: redisMissing() },
  scoped(async (scope) => {
    const directory = `${await tempDir(scope)}/peers`;
    mkdirSync(directory);
    const flags = { 'peer-uds-dir': directory };
    const plane = await hubPlane(scope, { hubs: 2, hubFlags: flags, gatewayFlags: flags });
    const { gateway, hubs, ways } = plane;
    const addressOf = (hub: Member, lines = gateway.program.logs) =>
      lines.filter((line) => line.msg === 'hub connected' && line.hub === hub.id).map(({ address }) => `${address}`);
    const sockets = new Map<Member, string>();
    for (const hub of hubs)
      sockets.set(hub, await until(() => addressOf(hub)[0], { what: `a line about the link to ${hub.id}` }));
    for (const path of sockets.values()) assert.equal(dirname(path), directory);
    const socketOf = (hub: Member) => sockets.get(hub) ?? '';
    const { authority } = await echo(scope);
    const tunnels = [];
    for (const protocol of PROTOCOLS) tunnels.push(await dial(scope, ways, protocol, authority));
    const lines = linesFromNow(gateway);
    for (const hub of hubs) {
      await hub.kill();
      // What a process leaves that is killed.
      assert.equal(existsSync(socketOf(hub)), true);
      for (const tunnel of tunnels) await carries(tunnel);
      await hub.restart();
      await wholeAgain(plane);
      const again = () => addressOf(hub, lines('hub connected'));
      await until(() => again().length > 0, { what: `a new link to ${hub.id}` });
      assert.deepEqual(again(), [socketOf(hub)]);
    }
    for (const tunnel of tunnels) await carries(tunnel);
    const [hub] = hubs as [Member];
    hub.program.signal('SIGTERM');
    await hub.program.ended();
    assert.equal(existsSync(socketOf(hub)), false);
  }),
);
