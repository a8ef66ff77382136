import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { type AddressInfo, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { bind } from './bind.ts';
import { RUNTIME } from './defaults.ts';
import { changed } from './testing.ts';

/** More than Node's own default lets wait. */
const CALLERS = 600;

const somaxconn = Number(await readFile('/proc/sys/net/core/somaxconn', 'latin1').catch(() => 0));

test('callers that dial together on a unix socket while its process is busy wait, and are accepted', {
  skip: somaxconn < CALLERS && 'the kernel lets fewer connections wait',
  timeout: 60_000,
}, async (context) => {
  const dir = await mkdtemp(join(tmpdir(), 'bind-'));
  context.after(() => rm(dir, { recursive: true }));
  const path = join(dir, 's');
  let accepted = 0;
  const server = createServer((socket) => {
    accepted++;
    socket.end();
  });
  const bound = await bind(server, {
    at: { path, deleteExisting: false },
    limits: { enter: () => true },
    failed: (error) => assert.fail(error),
  });
  // All of them in one tick of the event loop, in which nothing can be accepted.
  const callers = Array.from({ length: CALLERS }, () => connect(path).resume());
  context.after(async () => {
    for (const socket of callers) socket.destroy();
    await bound.close();
  });
  await Promise.all(callers.map((socket) => once(socket, 'close')));
  assert.equal(accepted, CALLERS);
});

test('a caller that connects while the last events before a stop are handled is accepted', {
  skip: 'Deno' in globalThis && 'Deno accepts at other times than once a tick',
}, async (context) => {
  let accepted = 0;
  const server = createServer((socket) => {
    accepted++;
    socket.on('error', () => {}).end();
  });
  const bound = await bind(server, {
    at: { host: '127.0.0.1', port: 0 },
    limits: { enter: () => true },
    failed: (error) => assert.fail(error),
  });
  const other = createServer();
  await once(other.listen(0, '127.0.0.1'), 'listening');
  const events = connect((other.address() as AddressInfo).port, '127.0.0.1');
  const [told] = await once(other, 'connection');
  context.after(() => {
    events.destroy();
    other.close();
  });
  told.on('error', () => {});
  let stopped: Promise<void> | undefined;
  events.on('data', () => {
    if (!stopped) {
      // Its answer is there when the loop next looks for events.
      stopped = bound.stop();
      told.write('2', () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200));
    } else {
      const calls = `require('net').connect(${bound.address.port}, '127.0.0.1', () => process.exit(0))`;
      assert.equal(spawnSync(process.execPath, ['-e', calls]).status, 0);
    }
  });
  told.write('1');
  await once(events, 'data');
  await stopped;
  await bound.idle;
  assert.equal(accepted, 1);
});

test('a process that is never idle stops listening all the same', async (context) => {
  using _ = changed(RUNTIME, { queueMs: 200 });
  const bound = await bind(createServer(), {
    at: { host: '127.0.0.1', port: 0 },
    limits: { enter: () => true },
    failed: (error) => assert.fail(error),
  });
  let ticks = 0;
  const busy = () => {
    ticks++;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
    again = setImmediate(busy);
  };
  let again = setImmediate(busy);
  context.after(() => clearImmediate(again));
  await bound.stop();
  assert.ok(ticks <= 20, `it stopped after ${ticks} ticks`);
});
