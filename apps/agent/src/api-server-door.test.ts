import assert from 'node:assert/strict';
import net, { BlockList } from 'node:net';
import { afterEach, test } from 'node:test';
import { freePort } from '@isthmus/directory/testing/servers';
import { descriptors, listeningAt, machineAddresses, memory } from '@isthmus/runtime';
import { changed, until } from '@isthmus/runtime/testing';
import { planeEvents } from '@isthmus/tunnel';
import { ApiServerDoor, isAllowed } from './api-server-door.ts';
import { AGENT } from './defaults.ts';
import { HubLinks } from './hub-links.ts';
import { AgentToken } from './token.ts';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** An agent's door, without a hub. */
async function door(port: number, dial?: () => Promise<unknown>) {
  const events = planeEvents();
  const refusals: string[] = [];
  const failures: string[] = [];
  events.on('refused', (_where, _remote, error) => void refusals.push(error.message));
  events.on('api-server:failure', (_dial, error) => void failures.push(error.message));
  const instance = '0123456789abcdef';
  const hello = { agentId: 'a1', identifiers: '', version: '' };
  const links = new HubLinks({
    serverNames: [],
    alpn: [],
    token: new AgentToken(() => undefined),
    hello,
    instance,
    events,
  });
  if (dial) Object.assign(links, { dial });
  const places = [{ host: '127.0.0.1', port }];
  const observation = { events };
  const opened = new ApiServerDoor({ agentId: 'a1', places, networks: new BlockList(), links, instance, observation });
  await opened.listen();
  cleanups.push(() => opened.close());
  return { opened, refusals, failures };
}

/** @returns how its connection ends */
function client(port: number, localAddress = '127.0.0.1'): Promise<string> {
  const socket = net.connect({ host: '127.0.0.1', port, localAddress, allowHalfOpen: true });
  cleanups.push(() => socket.destroy());
  return new Promise((resolve) => {
    socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? ''));
    socket.on('end', () => resolve('end')).resume();
  });
}

test('a client waits for a hub, and is then reset', async () => {
  using _ = changed(AGENT, { apiServerWaitMs: 100 });
  const port = await freePort();
  const { opened, failures } = await door(port);
  const ended = client(port);
  await until(() => opened.open === 1, { what: 'the client' });
  assert.equal(opened.check.ok, false);
  assert.match(opened.check.detail, /^no hub can be reached/);
  assert.equal(await ended, 'ECONNRESET');
  assert.match(failures[0] ?? '', /^no hub can be reached/);
  await until(() => opened.open === 0, { what: 'its end' });
});

test('what was reached for a client is ended if its tunnel cannot begin', async () => {
  const ended: Error[] = [];
  // No stream of a tunnel.
  const end = { abort: (reason: Error) => void ended.push(reason) };
  const port = await freePort();
  const { failures } = await door(port, () => Promise.resolve([{ id: '1' }, { end, agentId: 'h1' }]));
  assert.equal(await client(port), 'ECONNRESET');
  assert.equal(failures.length, 1);
  assert.equal(ended[0]?.message, failures[0]);
});

test('of a flood only so many wait, no source takes the places of others, and the rest are reset at once', async () => {
  using _ = changed(AGENT, { apiServerWaiting: 8 });
  const port = await freePort();
  const { opened, refusals } = await door(port);
  const ended = Array.from({ length: 50 }, () => client(port, '127.0.0.2'));
  await until(() => refusals.length === 46, { what: () => `46 refusals, and not ${refusals.length}` });
  assert.match(refusals[0] ?? '', /^clients from 127\.0\.0\.2 that wait for a hub leave too few/);
  assert.equal(opened.open, 4);
  ended.push(client(port, '127.0.0.3'), client(port, '127.0.0.3'));
  await until(() => opened.open === 6, { what: () => `two of another source, and not ${opened.open - 4}` });
  await opened.close();
  assert.deepEqual(new Set(await Promise.all(ended)), new Set(['ECONNRESET']));
});

test('a source has so many connections, of this process no more than it leaves files to others, and others are served', async () => {
  using _ = changed(AGENT, { apiServerClientsOfSource: 3 });
  const port = await freePort();
  const { opened, refusals } = await door(port);
  const greedy = () => client(port, '127.0.0.2');
  const ended = [greedy(), greedy(), greedy(), greedy()];
  await until(() => refusals.length === 1, { what: 'a refusal' });
  assert.equal(refusals[0], '3 connections from 127.0.0.2 are open');
  assert.equal(await Promise.race(ended), 'ECONNRESET');
  assert.equal(opened.open, 3);
  void client(port, '127.0.0.3');
  await until(() => opened.open === 4, { what: 'a client of another source' });
  Object.defineProperty(descriptors, 'left', { get: () => 0, configurable: true });
  cleanups.push(() => Reflect.deleteProperty(descriptors, 'left'));
  assert.equal(await client(port, '127.0.0.3'), 'ECONNRESET');
  assert.equal(refusals[1], 'too many open files: 127.0.0.3 has 1 of them');
  void client(port, '127.0.0.4');
  await until(() => opened.open === 5, { what: 'a client of a third source' });
});

test('clients do not take the last memory', async (t) => {
  const scarce = t.mock.getter(memory, 'scarce', () => true);
  cleanups.push(() => scarce.mock.restore());
  const at = await freePort();
  const { opened, refusals } = await door(at);
  assert.equal(await client(at), 'ECONNRESET');
  assert.deepEqual(refusals, ['too little memory: 127.0.0.1 has 0 connections']);
  assert.equal(opened.open, 0);
});

test('clients do not take the last file descriptors', async () => {
  const at = await freePort();
  const { opened, refusals } = await door(at);
  Object.defineProperty(descriptors, 'left', { get: () => -1, configurable: true });
  cleanups.push(() => Reflect.deleteProperty(descriptors, 'left'));
  assert.equal(await client(at), 'ECONNRESET');
  assert.deepEqual(refusals, ['too many open files: 127.0.0.1 has 0 of them']);
  assert.equal(opened.open, 0);
});

test('an address goes to the next process once that one listens there, and not before', async () => {
  const port = await freePort();
  const { opened: first } = await door(port);
  first.leave();
  assert.equal(listeningAt({ host: '127.0.0.1', port }), 1);
  const { opened: next } = await door(port);
  await until(() => listeningAt({ host: '127.0.0.1', port }) === 1, { what: 'the first one to leave' });
  void client(port);
  await until(() => next.open === 1, { what: 'the client at the next one' });
  assert.equal(first.open, 0);
});

test('of two that are told to stop together one stays, until a next one listens', async () => {
  using _ = changed(AGENT, { apiServerTakenLookMs: 1 });
  const port = await freePort();
  const listening = (count: number) =>
    until(() => listeningAt({ host: '127.0.0.1', port }) === count, { what: `${count} that listen` });
  const [{ opened: one }, { opened: other }] = [await door(port), await door(port)];
  one.leave();
  other.leave();
  await listening(1);
  void client(port);
  await until(() => one.open + other.open === 1, { what: 'the client at the one that stays' });
  const { opened: next } = await door(port);
  await listening(1);
  void client(port);
  await until(() => next.open === 1, { what: 'the client at the next one' });
});

test('only this machine and the named networks may use it', () => {
  const networks = new BlockList();
  networks.addSubnet('10.244.0.0', 16, 'ipv4');
  networks.addSubnet('fd00:1::', 32, 'ipv6');
  const allowed = ['127.0.0.1', '127.3.2.1', '::1', '10.244.7.9', 'fd00:1::9', ...machineAddresses()];
  for (const from of allowed) assert.equal(isAllowed(from, networks), true, from);
  for (const from of ['10.245.0.1', '192.0.2.1', 'fd00:2::1', '']) assert.equal(isAllowed(from, networks), false, from);
});
