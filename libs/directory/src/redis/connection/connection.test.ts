import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { test } from 'node:test';
import { RegistryUnavailable } from '../../registry.ts';
import { redisRegistry } from '../registry.ts';

test('the error for a connection that broke during a command says so in plain words', async (t) => {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    // Accepts what the client says about itself, and does not answer its first script.
    socket.on('data', (data) => {
      const said = data.toString();
      if (said.includes('eval')) socket.destroy();
      else socket.write('+OK\r\n'.repeat(said.match(/^\*/gm)?.length ?? 0));
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const registry = redisRegistry({ url: `redis://127.0.0.1:${port}`, plane: 'p' });
  t.after(() => registry.close());
  await assert.rejects(registry.snapshot(), (error: Error) => {
    assert.ok(error instanceof RegistryUnavailable);
    assert.match(
      error.message,
      new RegExp(`^redis 127\\.0\\.0\\.1:${port}: the connection broke before an answer came$`),
    );
    return true;
  });
});
