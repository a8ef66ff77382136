import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { LazyRpc, type RpcServer, refuseRpc } from './lazy-rpc.ts';

describe('lazy', () => {
  const listener = createServer();
  const sockets: Socket[] = [];
  const deadline = () => ({ signal: AbortSignal.timeout(60_000) });

  before(() => once(listener.listen(0, '127.0.0.1'), 'listening'));
  after(() => {
    for (const socket of sockets) socket.destroy();
    listener.close();
  });

  /** Returns both ends of a connection that starts with the HTTP/2 preface. */
  async function connection(): Promise<{ client: Socket; server: Socket }> {
    const client = connect((listener.address() as AddressInfo).port, '127.0.0.1');
    const [server] = await once(listener, 'connection', deadline());
    sockets.push(client, server);
    client.on('error', () => {}).write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
    return { client, server };
  }

  test('a client that left before it could be served is forgotten', async () => {
    const [gone, here] = [await connection(), await connection()];
    gone.server.destroy();
    await once(gone.server, 'close', deadline());
    const rpc = new LazyRpc(refuseRpc, assert.fail);
    rpc.accept(gone.server);
    rpc.accept(here.server);
    // The server's SETTINGS frame.
    await once(here.client, 'data', deadline());
    assert.equal(gone.server.listenerCount('close'), 0);
  });

  test('a client is disconnected, with a warning, if the server cannot load or fails to accept it', async () => {
    const unloadable = () => Promise.reject(new Error('no such module'));
    const failing = async () => ({ accept: () => assert.fail('broken'), close() {} });
    for (const [load, why] of [
      [unloadable, 'no such module'],
      [failing, 'broken'],
    ] as const) {
      const warnings: string[] = [];
      const { server } = await connection();
      const rpc = new LazyRpc(load, (message) => warnings.push(message));
      const closed = once(server, 'close', deadline());
      rpc.accept(server);
      await closed;
      assert.deepEqual(warnings, [`the admin RPC cannot serve a client: ${why}`]);
      await rpc.close();
    }
  });

  test('a server that closes while it loads is stopped', async () => {
    const { promise: loading, resolve: loaded } = Promise.withResolvers<RpcServer>();
    let stopped = 0;
    const rpc = new LazyRpc(() => loading, assert.fail);
    rpc.accept((await connection()).server);
    const closed = rpc.close();
    loaded({ accept() {}, close: () => stopped++ });
    await closed;
    assert.equal(stopped, 1);
  });
});
