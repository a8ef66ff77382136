import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { bind } from '@isthmus/runtime';
import { startFailure } from './start-failure.ts';

test('a socket path that is refused names its flag, whatever refuses it', async (context) => {
  const dir = await mkdtemp(join(tmpdir(), 'start-'));
  context.after(() => rm(dir, { recursive: true }));
  const path = join(dir, 'taken');
  await writeFile(path, '');
  const missing = join(dir, 'none', 's');
  const rows = [
    [path, false, `--uds-name: ${path} exists already (--delete-existing-uds-file would delete it)`],
    [path, true, `--uds-name: ${path} exists and is not a unix socket`],
    [missing, true, `--uds-name: cannot listen on ${missing}: `],
  ] as const;
  for (const [at, deleteExisting, wanted] of rows) {
    const door = { enter: () => true };
    const error = await bind(createServer(), { at: { path: at, deleteExisting }, door, failed() {} }).catch((e) => e);
    const values = { 'uds-name': at, 'admin-uds-name': join(dir, 'other') };
    assert.ok(startFailure(error, {}, values).startsWith(wanted), startFailure(error, {}, values));
    const wrapped = new Error('cannot listen on the admin address', { cause: error });
    const admin = startFailure(wrapped, {}, { 'uds-name': '', 'admin-uds-name': at });
    assert.ok(admin.startsWith(wanted.replace('--uds-name', '--admin-uds-name')), admin);
  }
});
