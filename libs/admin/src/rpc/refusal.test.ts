import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { after, before, test } from 'node:test';
import { RpcRefusal } from './refusal.ts';

const listener = createServer();
const sockets: Socket[] = [];
const deadline = { signal: AbortSignal.timeout(60_000) };

before(() => once(listener.listen(0, '127.0.0.1'), 'listening'));
after(() => {
  for (const socket of sockets) socket.destroy();
  listener.close();
});

/** Returns both ends of a connection that starts with the HTTP/2 preface. */
async function connection(): Promise<{ client: Socket; server: Socket }> {
  const client = connect((listener.address() as AddressInfo).port, '127.0.0.1');
  const [server] = await once(listener, 'connection', deadline);
  sockets.push(client, server);
  client.on('error', () => {}).write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
  return { client, server };
}

test('a client that left before it could be refused is forgotten', async () => {
  const [gone, here] = [await connection(), await connection()];
  gone.server.destroy();
  await once(gone.server, 'close', deadline);
  const refusal = new RpcRefusal();
  refusal.take(gone.server);
  refusal.take(here.server);
  // The server's SETTINGS frame.
  await once(here.client, 'data', deadline);
  assert.equal(gone.server.listenerCount('close'), 0);
});

test('a connection that fails while it is refused is closed, and nothing else fails', { timeout: 60_000 }, () => {
  return new Promise<void>((resolve) => {
    const broken = {
      get destroyed(): boolean {
        throw new Error('broken');
      },
      destroy: () => resolve(),
    };
    new RpcRefusal().take(broken as Socket);
  });
});
