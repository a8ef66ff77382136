import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { test } from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import {
  freePort,
  newTrust,
  type Program,
  residentBytes,
  type Scope,
  scoped,
  split,
  startServer,
  unlessSlow,
  until,
} from '../harness/index.ts';
import { listening } from '../rig/child.ts';
import { helloOf, NAME } from '../rig/load/hello.ts';
import { MODES } from '../rig/load/modes.ts';

const KIB = 1024;
/** Clients that connect at once: an agent's clients that wait for a hub are few. */
const AT_ONCE = 200;
/** What each client sends and gets back before it is silent. */
const SAID_BYTES = 2 * KIB;
/** Processes here have 20,000 descriptors, and a connection takes two. */
const BY_NAME = 9_500;
const BY_ADDRESS = 5_000;

/** Most memory of a silent connection, in KiB. docs/PERFORMANCE.md has what was measured: about half. */
const MOST = { name: { hub: 40 }, address: { agent: 32, hub: 28, gateway: 36 } };

/** Opens connections that say something, hear it back, and are silent then. */
async function quiet(scope: Scope, port: number, count: number, before: () => Buffer): Promise<void> {
  let left = count;
  const one = async () => {
    const socket = net.connect({ host: '127.0.0.1', port });
    scope.defer(() => void socket.destroy());
    await once(socket, 'connect');
    socket.write(Buffer.concat([before(), Buffer.from([MODES.echo]), Buffer.alloc(SAID_BYTES)]));
    await heard(socket, SAID_BYTES);
  };
  const turn = async () => {
    while (left-- > 0) await one();
  };
  await Promise.all(Array.from({ length: AT_ONCE }, turn));
}

function heard(socket: Socket, bytes: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let got = 0;
    socket.on('data', (chunk: Buffer) => {
      got += chunk.length;
      if (got === bytes) resolve();
    });
    socket.once('close', () => reject(new Error(`a connection ended after ${got} of ${bytes} bytes`)));
  });
}

/** Waits until a silent connection takes no more than it may. Most garbage of the opening goes a while later. */
async function take(
  programs: Readonly<Record<string, Program>>,
  most: Readonly<Record<string, number>>,
  open: () => Promise<number>,
) {
  const memory = () => Object.entries(programs).map(([name, { pid }]) => [name, residentBytes(pid)] as const);
  const before = new Map(memory());
  const count = await open();
  const each = () =>
    Object.fromEntries(memory().map(([name, bytes]) => [name, (bytes - (before.get(name) ?? 0)) / KIB / count]));
  const holds = () => Object.entries(each()).every(([name, kib]) => kib <= (most[name] ?? 0));
  const what = () => `${JSON.stringify(each())} KiB a connection of ${count}, and not ${JSON.stringify(most)}`;
  await until(holds, { what, deadline: 60_000 });
  assert.ok(Object.values(programs).every(({ running }) => running));
}

test(
  'a silent connection by name takes a hub no more than 40 KiB',
  { skip: unlessSlow(), timeout: 300_000 },
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const { port } = await listening(scope, 'rig/load/destination.ts');
    const flags = { 'api-server-name': NAME, 'api-server': `127.0.0.1:${port}` };
    const { program, agentPort } = await startServer(scope, trust, flags);
    const hello = () => helloOf(randomBytes(32));
    await quiet(scope, agentPort, AT_ONCE, hello);
    await take({ hub: program }, MOST.name, async () => {
      await quiet(scope, agentPort, BY_NAME - AT_ONCE, hello);
      return BY_NAME - AT_ONCE;
    });
    const open = await program.metric('isthmus_api_server_connections');
    assert.equal(open.get('{tenant="default"}'), BY_NAME);
  }),
);

test(
  'a silent connection by address takes an agent, a hub and a gateway no more than 36 KiB each',
  { skip: unlessSlow() || redisMissing(), timeout: 300_000 },
  scoped(async (scope) => {
    const { port } = await listening(scope, 'rig/load/destination.ts');
    const door = await freePort();
    const { hubs, gateways, agents } = await split(scope, {
      ...{ gateways: 1, hubs: 1 },
      gatewayFlags: { 'api-server': `127.0.0.1:${port}` },
      agentFlags: { 'api-server-listen': `127.0.0.1:${door}` },
    });
    const [hub, gateway, agent] = [hubs[0]?.program, gateways[0]?.program, agents[0]];
    assert.ok(hub && gateway && agent);
    const none = () => Buffer.alloc(0);
    const serves = () => quiet(scope, door, 1, none).then(...[() => true, () => false]);
    await until(serves, { what: 'the link of the gateway' });
    await quiet(scope, door, AT_ONCE, none);
    await take({ agent, hub, gateway }, MOST.address, async () => {
      await quiet(scope, door, BY_ADDRESS, none);
      return BY_ADDRESS;
    });
  }),
);
