import assert from 'node:assert/strict';
import net, { type AddressInfo } from 'node:net';
import { afterEach, test } from 'node:test';
import { changed } from '@isthmus/runtime/testing';
import { planeEvents } from '@isthmus/tunnel';
import { AGENT } from './defaults.ts';
import { HubLinks } from './hub-links.ts';
import type { Uplink } from './uplink.ts';

const cleanups: (() => unknown)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0).reverse()) cleanup();
});

test('a hub that refuses an agent the link to its API server is asked ever more rarely', async () => {
  using _ = changed(AGENT, { apiServerLinkAgainMs: 10, apiServerLinkAgainMostMs: 20 });
  let asked = 0;
  const hub = net.createServer((socket) => {
    asked++;
    socket.on('error', () => {}).once('data', () => socket.end('HTTP/1.1 429 Too Many Requests\r\n\r\n'));
  });
  await new Promise<void>((resolve) => hub.listen(0, '127.0.0.1', resolve));
  const { port } = hub.address() as AddressInfo;
  const hello = { agentId: 'a1', identifiers: '', version: '1' };
  const instance = '0123456789abcdef';
  const links = new HubLinks({
    ...{ serverNames: [], alpn: [], token: () => undefined, hello, instance, events: planeEvents() },
  });
  const closed = Promise.withResolvers<Error | undefined>();
  cleanups.push(() => {
    closed.resolve(undefined);
    links.destroy(new Error('test over'));
    hub.close();
  });
  const server = { address: '127.0.0.1', port };
  links.follow({ protocol: 'link', server, serverId: 'h1', leaving: false, closed: closed.promise } as Uplink);
  await new Promise((resolve) => setTimeout(resolve, 2000));
  assert.ok(asked > 1 && asked < 15, `asked ${asked} times in 2 s`);
});
