import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { bind } from './bind.ts';

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
