import assert from 'node:assert/strict';
import net, { type AddressInfo, type Socket } from 'node:net';
import { afterEach, type TestContext, test } from 'node:test';
import { Backoff } from '@isthmus/runtime';
import { changed, until } from '@isthmus/runtime/testing';
import { TRANSPORT } from '@isthmus/transport';
import { planeEvents } from '@isthmus/tunnel';
import { AGENT } from './defaults.ts';
import { HubLinks } from './hub-links.ts';
import { AgentToken } from './token.ts';
import type { Uplink } from './uplink.ts';

const cleanups: (() => unknown)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0).reverse()) cleanup();
});

/** An agent's links to a hub's agent port, where `serve` answers. What each pause before another attempt is, goes into `pauses`, in milliseconds. */
async function follow(t: TestContext, serve: (socket: Socket) => void) {
  const pauses: number[] = [];
  const next = Backoff.prototype.next;
  t.mock.method(Backoff.prototype, 'next', function (this: Backoff, cap?: number) {
    const pause = next.call(this, cap);
    pauses.push(pause);
    return pause;
  });
  const hub = net.createServer((socket) => void serve(socket.on('error', () => {})));
  await new Promise<void>((resolve) => hub.listen(0, '127.0.0.1', resolve));
  const { port } = hub.address() as AddressInfo;
  const hello = { agentId: 'a1', identifiers: '', version: '1' };
  const instance = '0123456789abcdef';
  const links = new HubLinks({
    ...{ serverNames: [], alpn: [], token: new AgentToken(() => undefined), hello, instance, events: planeEvents() },
  });
  const closed = Promise.withResolvers<Error | undefined>();
  cleanups.push(() => {
    closed.resolve(undefined);
    links.destroy(new Error('test over'));
    hub.close();
  });
  const server = { address: '127.0.0.1', port };
  links.follow({ protocol: 'link', server, serverId: 'h1', leaving: false, closed: closed.promise } as Uplink);
  return { pauses, end: closed.resolve };
}

test('a hub that refuses an agent the link to its API server is asked ever more rarely', async (t) => {
  using _ = changed(TRANSPORT, { linkAgainMs: 10, hubLinkAgainMostMs: 20 });
  let asked = 0;
  const { pauses } = await follow(t, (socket) => {
    asked++;
    socket.once('data', () => socket.end('HTTP/1.1 429 Too Many Requests\r\n\r\n'));
  });
  // With pauses of 20 ms, it would be asked 15 times within 300 ms.
  await until(() => pauses.reduce((sum, each) => sum + each, 0) >= 300, 'pauses');
  assert.ok(asked > 1 && asked < 15, `asked ${asked} times`);
});

test('a hub whose link to the API server only fails is asked again as soon as usual', async (t) => {
  using _ = changed(TRANSPORT, { linkAgainMs: 10, hubLinkAgainMostMs: 20 });
  const { pauses } = await follow(t, (socket) => void socket.destroy());
  await until(() => pauses.length >= 8, 'pauses');
  assert.ok(Math.max(...pauses) <= 20, `${pauses}`);
});

test('an agent leaves a hub that does not answer once its session there has ended', async (t) => {
  using _ = changed(AGENT, { apiServerLinkMs: 600_000 });
  let open = 0;
  const { end } = await follow(t, (socket) => {
    open++;
    socket.on('close', () => open--).resume();
  });
  await until(() => open > 0, 'a connection');
  end(undefined);
  await until(() => open === 0, 'its end');
});
