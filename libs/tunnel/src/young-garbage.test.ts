import assert from 'node:assert/strict';
import { test } from 'node:test';
import { YoungGarbage } from './young-garbage.ts';

test('the young generation is collected after every 8 MiB, and not else', () => {
  const asked: unknown[] = [];
  const garbage = new YoungGarbage((options) => asked.push(options));
  for (let read = 0; read < 24 * 1024 * 1024; read += 65_536) garbage.read(65_536);
  garbage.read(8 * 1024 * 1024 - 1);
  assert.deepEqual(asked, Array(3).fill({ type: 'minor' }));
});

test("a runtime's own collector can be asked, and what lives stays", () => {
  const garbage = new YoungGarbage();
  const kept = Buffer.from('kept');
  garbage.read(1e9);
  assert.equal(String(kept), 'kept');
});
