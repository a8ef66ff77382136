import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { test } from 'node:test';
import { Ports } from './layout.ts';

test('a wanted port is returned if it is free, otherwise the next tenth one, and each only once', async () => {
  const ports = new Ports(async (port) => port !== 8101);
  const taken: number[] = [];
  for (const wanted of [8090, 8090, 8091, 8091, 8090]) taken.push(await ports.take(wanted));
  assert.deepEqual(taken, [8090, 8100, 8091, 8111, 8110]);
});

test('another port is returned if the wanted one is in use', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  try {
    assert.ok((await new Ports().take(port)) > port);
  } finally {
    server.close();
  }
});

test('without a free port it says so', async () => {
  await assert.rejects(new Ports(async () => false).take(8090), /no free TCP port on 127\.0\.0\.1 from 8090 on/);
});
