import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { test } from 'node:test';
import { Ports } from './ports.ts';

test('a wanted port is returned if it is free, and only once', async () => {
  const ports = new Ports();
  for (let tries = 0; tries < 20; tries++) {
    const free = await new Ports().take();
    // Another process may have taken it meanwhile.
    if ((await ports.take(free)) !== free) continue;
    assert.notEqual(await ports.take(free), free);
    return;
  }
  assert.fail('no free port was given');
});

test('another port is returned if the wanted one is in use', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  try {
    const given = await new Ports().take(port);
    assert.notEqual(given, port);
    assert.ok(given > 0);
  } finally {
    server.close();
  }
});
