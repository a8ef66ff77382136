import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { changed, until } from '@isthmus/runtime/testing';
import { DIRECTORY } from '../defaults.ts';
import { RegistryUnavailable } from '../registry.ts';
import { PLANE_USER, planeUserArgs, redisMissing, startRedis } from '../testing/redis-server.ts';
import { endpointOf } from './connection.ts';
import { redisRegistry } from './registry.ts';

/** A registry at a server that plays Redis. */
async function connected(t: TestContext, play: (socket: Socket) => void) {
  const server = createServer((socket) => play(socket.on('error', () => {}))).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const registry = redisRegistry({ url: `redis://127.0.0.1:${port}`, plane: 'p' });
  t.after(() => registry.close());
  return { port, registry };
}

test('the error for a connection that broke during a command says so in plain words', async (t) => {
  const { port, registry } = await connected(t, (socket) => {
    // Accepts what the client says about itself, and does not answer its first script.
    socket.on('data', (data) => {
      const said = data.toString();
      if (said.includes('eval')) socket.destroy();
      else socket.write('+OK\r\n'.repeat(said.match(/^\*/gm)?.length ?? 0));
    });
  });
  await assert.rejects(registry.members(), (error: Error) => {
    assert.ok(error instanceof RegistryUnavailable);
    assert.match(
      error.message,
      new RegExp(`^redis 127\\.0\\.0\\.1:${port}: the connection broke before an answer came$`),
    );
    return true;
  });
});

test('a server that has as many clients as it may have is heard, and not the broken pipe of who writes to it', async (t) => {
  using _ = changed(DIRECTORY, { commandMs: 60_000, staggerMs: 60_000 });
  let connections = 0;
  const { port, registry } = await connected(t, (socket) => {
    // What it says to the first is lost to who has written: Linux drops it at the reset.
    if (++connections === 1) socket.once('data', () => socket.resetAndDestroy());
    else socket.end('-ERR max number of clients reached\r\n');
  });
  for (let tries = 0; tries < 3; tries++)
    await assert.rejects(registry.members(), { message: `redis 127.0.0.1:${port}: max number of clients reached` });
});

test('the next connection uses a rotated password', {
  skip: redisMissing(),
  timeout: 120_000,
}, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'isthmus-redis-password-'));
  t.after(() => rm(dir, { recursive: true }));
  const file = join(dir, 'password');
  await writeFile(file, PLANE_USER.password);
  const server = await startRedis({ args: planeUserArgs });
  t.after(() => server.stop());
  const credentials = () => ({ user: { username: PLANE_USER.name, password: readFileSync(file, 'utf8') } });
  const faults: string[] = [];
  const fault = (error: Error | undefined) => void faults.push(error?.message.replace(/,.*/, '') ?? 'well');
  const registry = redisRegistry({ url: server.url, plane: 'p', credentials, fault });
  t.after(() => registry.close());
  const answer = () =>
    registry.members().then(
      () => 'answers',
      (error: Error) => error.message,
    );
  assert.equal(await answer(), 'answers');
  await server.command(`ACL SETUSER ${PLANE_USER.name} resetpass >rotated`);
  await server.command(`CLIENT KILL USER ${PLANE_USER.name}`);
  await until(async () => /WRONGPASS|NOAUTH/.test(await answer()), 'a refusal');
  assert.doesNotMatch(await answer(), new RegExp(PLANE_USER.password));
  await writeFile(file, 'rotated');
  await until(async () => (await answer()) === 'answers', 'the new password to be used');
  // A connection may have read the file while it was written.
  faults.length = 0;
  // During a rotation, the last password remains in use.
  for (const spoil of [() => rm(file), () => writeFile(file, '')]) {
    await spoil();
    await server.command(`CLIENT KILL USER ${PLANE_USER.name}`);
    await until(async () => (await answer()) === 'answers', 'the last password to be used');
  }
  assert.deepEqual(faults, ['ENOENT: no such file or directory', 'a file for --redis-* is empty']);
});

test('a password that came after an empty file stays when the file is empty again', () => {
  let password = '';
  const { address } = endpointOf({ url: 'redis://a', plane: 'p', credentials: () => ({ user: { password } }) });
  const used = ['', 'word', ''].map((next) => {
    password = next;
    return address.user.password;
  });
  assert.deepEqual(used, ['', 'word', 'word']);
});
