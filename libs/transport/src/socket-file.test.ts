import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import test from 'node:test';
import { SocketFile } from './socket-file.ts';

/** Listens on a socket's file, and says who it is. */
async function bind(file: SocketFile, name: string): Promise<net.Server> {
  const server = net.createServer((socket) => void socket.end(name)).listen(file.boundPath);
  await once(server, 'listening');
  file.place();
  return server;
}

async function close(server: net.Server): Promise<void> {
  server.close();
  await once(server, 'close');
}

test('a socket that is bound again takes its place again, but not from a process that took over meanwhile', async (context) => {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-socket-'));
  context.after(() => rmSync(dir, { recursive: true }));
  const path = join(dir, 'callers.sock');
  const old = new SocketFile(path, true);
  await close(await bind(old, 'old'));
  const again = await bind(old, 'old again');
  assert.equal(await text(net.connect(path)), 'old again');
  const file = new SocketFile(path, true);
  const taken = await bind(file, 'new');
  await close(again);
  const late = await bind(old, 'late');
  assert.equal(await text(net.connect(path)), 'new');
  old.remove();
  await close(late);
  assert.equal(await text(net.connect(path)), 'new');
  file.remove();
  await close(taken);
  assert.deepEqual(readdirSync(dir), []);
});
