import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, get, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import { ADMIN } from './defaults.ts';
import { adminHandler } from './handler.ts';

const metrics = async () => ({ contentType: 'text/plain; version=0.0.4', body: 'up 1\n' });

async function ask(port: number, path: string) {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, { redirect: 'manual' });
  return { status: response.status, location: response.headers.get('location'), body: await response.text() };
}

async function admin(handler: RequestListener) {
  const server = createServer(handler).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    port,
    /** The next request has reached the handler. */
    asked: () => once(server, 'request'),
    async [Symbol.asyncDispose]() {
      server.close();
      server.closeAllConnections();
    },
  };
}

test('the admin port has metrics, and profiles only when enabled', async () => {
  await using plain = await admin(adminHandler({ metrics, profiling: false }));
  assert.equal((await ask(plain.port, '/metrics')).body, 'up 1\n');
  assert.equal((await ask(plain.port, '/debug/pprof/')).status, 404);
  assert.equal((await ask(plain.port, '/')).status, 404);

  await using profiled = await admin(adminHandler({ metrics, profiling: true }));
  assert.equal((await ask(profiled.port, '/debug/pprof')).location, '/debug/pprof/');
  assert.match((await ask(profiled.port, '/debug/pprof/')).body, /profile\?seconds=30/);
  assert.equal((await ask(profiled.port, '/debug/pprof/trace')).status, 404);
  for (const seconds of ['0', '-1', 'x', '301']) {
    assert.equal((await ask(profiled.port, `/debug/pprof/profile?seconds=${seconds}`)).status, 400, seconds);
  }
});

test("a CPU profile and a heap snapshot have V8's formats", async () => {
  await using server = await admin(adminHandler({ metrics, profiling: true }));
  const profile = JSON.parse((await ask(server.port, '/debug/pprof/profile?seconds=0.1')).body);
  assert.ok(profile.nodes.length > 0 && profile.endTime > profile.startTime);
  const heap = await ask(server.port, '/debug/pprof/heap');
  assert.equal(heap.status, 200);
  assert.ok(JSON.parse(heap.body).snapshot.meta);
});

test('profiles and snapshots are taken one at a time, and one whose client left makes way for the next', async () => {
  await using server = await admin(adminHandler({ metrics, profiling: true }));
  const asked = server.asked();
  const request = get({ host: '127.0.0.1', port: server.port, path: '/debug/pprof/profile?seconds=300', agent: false });
  request.on('error', () => {});
  await asked;
  for (const other of ['heap', 'profile?seconds=0.01']) {
    assert.equal((await ask(server.port, `/debug/pprof/${other}`)).status, 409, other);
  }
  request.destroy();
  await until(async () => (await ask(server.port, '/debug/pprof/profile?seconds=0.01')).status === 200);
});

test('targets that are not known yet are no empty list: Prometheus keeps what it had', async () => {
  const scraped = async (tenant?: string) => (tenant === 'acme' ? [] : undefined);
  await using server = await admin(adminHandler({ metrics, profiling: false, tenants: { has: () => true, scraped } }));
  assert.equal((await ask(server.port, '/sd')).status, 503);
  assert.equal((await ask(server.port, '/sd?tenant=acme')).status, 200);
});

test('more targets than an answer may have are refused, with what to ask instead', async () => {
  const labels = { job: 'x' };
  const scraped = async (tenant?: string) => [
    { targets: ['h:1'], labels },
    ...(tenant === undefined ? [{ targets: new Array<string>(ADMIN.targets).fill('h:1'), labels }] : []),
  ];
  await using server = await admin(adminHandler({ metrics, profiling: false, tenants: { has: () => true, scraped } }));
  const all = await ask(server.port, '/sd');
  assert.equal(all.status, 400);
  assert.match(all.body, /there are 100001 targets, more than 100000: ask for \/sd\?tenant=NAME/);
  assert.deepEqual(JSON.parse((await ask(server.port, '/sd?tenant=acme')).body), [{ targets: ['h:1'], labels }]);

  const { headers } = await fetch(`http://127.0.0.1:${server.port}/sd?tenant=acme`);
  assert.equal(headers.get('connection'), 'close', 'many that ask hold no connections');

  await using plain = await admin(adminHandler({ metrics, profiling: false }));
  assert.equal((await ask(plain.port, '/sd')).status, 404);
});
