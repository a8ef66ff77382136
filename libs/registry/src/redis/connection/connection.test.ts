import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { test } from 'node:test';
import { RegistryUnavailable } from '../../registry.ts';
import { redisRegistry } from '../registry.ts';

test("a Redis that breaks the connection amid a command is told of without the client's own words", async (t) => {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    // What the client says of itself is taken; the first question is not answered.
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
