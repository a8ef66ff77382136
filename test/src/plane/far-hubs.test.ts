import assert from 'node:assert/strict';
import type { Duplex } from 'node:stream';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { startRedis } from '@isthmus/directory/testing/servers';
import type { Ways } from '../harness/index.ts';
import {
  agentMember,
  freePort,
  gatewayMember,
  hubMember,
  newTrust,
  peerFlags,
  relayTo,
  type Scope,
  scoped,
  startHub,
  times,
  unlessSlow,
  until,
  within,
} from '../harness/index.ts';
import { listening } from '../rig/child.ts';
import { answered } from '../rig/dial.ts';
import { header, MODES } from '../rig/load/modes.ts';
import { namespace, pathsMissing, pathTo } from '../rig/network.ts';

/** What a caller of a far cluster waits for an answer, and for the first bytes behind it, in milliseconds. */
const PATIENCE_MS = 30_000;

async function planeFlags(scope: Scope) {
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  return { 'redis-url': redis.url, plane: 'far' };
}

test(
  'a gateway has a link to a hub whose TLS handshake takes longer than a first try',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const flags = await planeFlags(scope);
    const peerPort = await freePort();
    const relay = await relayTo(scope, peerPort);
    // On a path of 1.7 s, TCP and TLS take two round trips. Here, the relay accepts at once.
    relay.delayMs = 1700;
    await startHub(scope, trust, { ...flags, 'peer-port': peerPort, 'advertise-address': relay.authority });
    const own = { ...flags, ...(await peerFlags(trust, ['gateway'])) };
    const { member } = await gatewayMember(scope, trust, 'gateway', { flags: own });
    const linked = async () => (await member.value('isthmus_hub_links').catch(() => 0)) === 1;
    await until(linked, { deadline: 40_000, what: () => `a link to the hub${member.program.tail}` });
  }),
);

/** Two hubs and a gateway here, and agents behind a path on which a round trip takes so long. */
async function far(scope: Scope, rttMs: number) {
  const trust = await newTrust(scope);
  const place = await namespace(scope, []);
  const path = await pathTo(scope, place);
  const direction = { delayMs: rttMs / 2 };
  await path.set({ up: direction, down: direction });
  const flags = await planeFlags(scope);
  const { cert, key } = await trust.agents.server({ hosts: [{ type: 'ip', value: path.outside }] });
  const hubs = await times(2, async (index) => {
    const port = await freePort();
    const own = {
      'server-id': `hub-${index}`,
      'agent-port': port,
      'agent-bind-address': path.outside,
      'advertise-agent-address': `${path.outside}:${port}`,
      'cluster-cert': cert,
      'cluster-key': key,
    };
    return { port, ...(await hubMember(scope, trust, `hub-${index}`, { flags: { ...flags, ...own } })) };
  });
  const own = { ...flags, ...(await peerFlags(trust, ['gateway'])) };
  const { member: gateway, ways } = await gatewayMember(scope, trust, 'gateway', { flags: own });
  const host = path.inside;
  await times(2, (index) =>
    agentMember(scope, trust, `agent-${index}`, hubs[index]?.port ?? 0, {
      flags: { 'agent-id': `agent-${index}`, 'proxy-server-host': path.outside, 'health-server-host': host },
      place: { command: place.command, host },
    }),
  );
  const { port } = await listening(scope, 'rig/load/destination.ts', {
    command: [...place.command, process.execPath],
  });
  const all = async () => (await gateway.sessions().catch(() => [])).length === 4;
  await until(all, { deadline: 60_000, what: () => `four sessions${gateway.program.tail}` });
  return { hubs, door: ways, destination: `127.0.0.1:${port}` };
}

async function opened(scope: Scope, door: Ways, destination: string): Promise<Duplex> {
  const tunnel = await answered(door, 'connect', destination, PATIENCE_MS);
  scope.defer(() => tunnel.destroy());
  return tunnel.on('error', () => {});
}

/** Dials, and waits for the first bytes back. */
async function exchange(scope: Scope, door: Ways, destination: string): Promise<void> {
  const tunnel = await opened(scope, door, destination);
  const back = new Promise<void>((resolve, reject) => {
    tunnel.once('data', () => resolve()).once('close', () => reject(new Error('it ended')));
  });
  tunnel.write(Buffer.of(MODES.echo, 0x2e));
  tunnel.resume();
  await within(back, { deadline: PATIENCE_MS, what: 'bytes behind a 200' });
  tunnel.destroy();
}

test(
  'each dial around a hub’s death carries bytes where a round trip takes 2.1 s, beside downloads',
  { skip: unlessSlow() || pathsMissing() },
  scoped(async (scope) => {
    const { hubs, door, destination } = await far(scope, 2100);
    const downloads = await times(8, () => opened(scope, door, destination));
    const moved = downloads.map(() => 0);
    for (const [index, tunnel] of downloads.entries()) {
      tunnel.on('data', (chunk: Buffer) => {
        moved[index] = (moved[index] ?? 0) + chunk.length;
      });
      tunnel.write(header('source', index, 250));
      tunnel.resume();
    }
    await until(() => moved.every((bytes) => bytes > 100_000), { deadline: 60_000, what: 'downloads under way' });
    const dials: Promise<void>[] = [];
    const begin = async (count: number) => {
      for (; count > 0; count--) {
        dials.push(exchange(scope, door, destination));
        await pause(50);
      }
    };
    await begin(150);
    await hubs[0]?.member.kill();
    await begin(451);
    const outcomes = await Promise.allSettled(dials);
    const failed = outcomes.flatMap((each) => (each.status === 'rejected' ? [String(each.reason)] : []));
    assert.deepEqual(failed, []);
  }),
);
