import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { archive, unpack } from './archive.mjs';

test('equal files make equal archives, whatever their times, order and modes', {
  skip: process.platform !== 'linux' && 'this takes GNU tar',
}, async () => {
  const place = mkdtempSync(join(tmpdir(), 'isthmus-archive-'));
  after(() => rmSync(place, { recursive: true, force: true }));
  const made = [];
  for (const [name, files] of Object.entries({ one: ['a', 'b/c'], two: ['b/c', 'a'] })) {
    const directory = join(place, name);
    mkdirSync(join(directory, 'b'), { recursive: true });
    for (const file of files) writeFileSync(join(directory, file), file);
    chmodSync(join(directory, 'a'), name === 'one' ? 0o600 : 0o664);
    const file = join(place, `${name}.tgz`);
    await archive(file, directory, { compress: true });
    made.push(readFileSync(file));
  }
  assert.ok(made[0].equals(made[1]));
  mkdirSync(join(place, 'again'));
  await unpack(join(place, 'one.tgz'), join(place, 'again'));
  assert.equal(readFileSync(join(place, 'again/b/c'), 'utf8'), 'b/c');
});
