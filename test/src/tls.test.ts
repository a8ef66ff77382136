import assert from 'node:assert/strict';
import { copyFile, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { Authority } from '@isthmus/service/testing';
import { secureContext } from '@isthmus/transport';

test('a context is made once, and again when its files have changed', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'isthmus-tls-'));
  t.after(() => rm(dir, { recursive: true }));
  const authority = await Authority.create(dir, 'agents');
  const [first, second] = [await authority.server(), await authority.server()];
  const settings = { ca: authority.cert, cert: join(dir, 'tls.crt'), key: join(dir, 'tls.key') };
  const install = async ({ cert, key }: { cert: string; key: string }) => {
    await copyFile(cert, settings.cert);
    await copyFile(key, settings.key);
  };
  await install(first);
  const context = secureContext(settings);
  assert.equal(secureContext(settings), context);
  await install(second);
  const renewed = secureContext(settings);
  assert.notEqual(renewed, context);
  assert.equal(secureContext(settings), renewed);
  await rm(settings.key);
  assert.throws(() => secureContext(settings), { code: 'ENOENT' });
});
