import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ErrorCode } from '../codes.ts';
import { ClientIds } from './client-ids.ts';

test('ids rise, and are odd', () => {
  const ids = new ClientIds();
  assert.deepEqual(
    [1, 5, 3, 5].map((id) => ids.begins(id)),
    [true, true, false, false],
  );
  assert.throws(() => ids.begins(6), /not a client's/);
  assert.deepEqual([ids.last, ids.used(3), ids.used(7)], [5, true, false]);
});

test('a request on an old stream is told from one that was passed over', () => {
  const ids = new ClientIds();
  for (const id of [1, 3, 5]) ids.begins(id);
  assert.equal(ids.again(3).code, ErrorCode.STREAM_CLOSED);
  ids.begins(9);
  assert.equal(ids.again(7).code, ErrorCode.PROTOCOL_ERROR);
});

test('the last streams that the peer ended are remembered, and no more', () => {
  const ids = new ClientIds();
  for (let id = 1; id <= 201; id += 2) ids.ended(id);
  assert.deepEqual(
    [1, 73, 75, 201].map((id) => ids.hasEnded(id)),
    [false, false, true, true],
  );
});
