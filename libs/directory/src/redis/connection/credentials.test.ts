import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import { PLANE_USER, planeUserArgs, redisMissing, startRedis } from '../../testing/redis-server.ts';
import { redisRegistry } from '../registry.ts';

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
  const registry = redisRegistry({ url: server.url, plane: 'p', credentials });
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
  // During a rotation, the last password remains in use.
  await rm(file);
  await server.command(`CLIENT KILL USER ${PLANE_USER.name}`);
  await until(async () => (await answer()) === 'answers', 'the last password to be used');
});
