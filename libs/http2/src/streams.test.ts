import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { ConnectionError, ErrorCode, FrameType } from './codes.ts';
import { Streams } from './streams.ts';
import { recorded, SETTINGS } from './testing.ts';

const HEAD = { ':method': 'CONNECT', ':authority': 'h:1' };

/** Streams without another side. */
function streamsOf(role: 'client' | 'server', maxConcurrentStreams = 10) {
  const { sending, frames } = recorded();
  const counts = { idle: 0 };
  const idle = () => {
    counts.idle++;
  };
  const settings = { ...SETTINGS, maxConcurrentStreams };
  return { streams: new Streams({ role, settings, sending, rtt: () => 0, idle }), counts, frames };
}

const broken = (error: unknown) => error instanceof ConnectionError && error.code === ErrorCode.PROTOCOL_ERROR;

test('a server takes ids that rise, and only those of a client', () => {
  const { streams } = streamsOf('server');
  assert.deepEqual(
    [1, 5, 3, 5].map((id) => streams.begins(id)),
    [true, true, false, false],
  );
  assert.equal(streams.last, 5);
  assert.throws(() => streams.begins(8), broken);
  for (const id of [1, 3, 5]) assert.equal(streams.known(id, 'DATA'), undefined, `${id} was open, or was passed over`);
  for (const id of [0, 7]) assert.throws(() => streams.known(id, 'DATA'), broken);
});

test('a client takes frames of what it opened, and no stream of the other side', () => {
  const { streams } = streamsOf('client');
  const [first, second] = [streams.request(HEAD), streams.request(HEAD)];
  assert.deepEqual([first.id, second.id], [1, 3]);
  assert.equal(streams.known(3, 'DATA'), second);
  assert.equal(streams.begins(5), false);
  for (const id of [0, 2, 5]) assert.throws(() => streams.known(id, 'HEADERS'), broken);
});

test('a server refuses streams beyond its most, and all once it takes no new ones', async () => {
  const { streams, frames } = streamsOf('server', 1);
  assert.equal(streams.accept(1)?.id, 1);
  assert.equal(streams.accept(3), undefined);
  streams.get(1)?.close();
  streams.refuseNew();
  assert.equal(streams.accept(5), undefined);
  await turn();
  const resets = frames.filter((frame) => frame[3] === FrameType.RST_STREAM);
  assert.deepEqual(
    resets.map((frame) => [frame.readUInt32BE(5), frame.readUInt32BE(9)]),
    [
      [3, ErrorCode.REFUSED_STREAM],
      [1, ErrorCode.CANCEL],
      [5, ErrorCode.REFUSED_STREAM],
    ],
  );
});

test('a client opens no more than the other side takes, and says when the last has ended', () => {
  const { streams, counts } = streamsOf('client');
  streams.adopt({ maxConcurrentStreams: 2 });
  const open = [streams.request(HEAD), streams.request(HEAD)];
  assert.throws(() => streams.request(HEAD), /takes no more than 2 streams/);
  for (const stream of open) stream.close();
  assert.deepEqual([streams.size, counts.idle], [0, 1]);
});

test('what the other side has not seen when it goes away is refused', () => {
  const { streams } = streamsOf('client');
  const [seen, unseen] = [streams.request(HEAD), streams.request(HEAD)];
  unseen.on('error', () => {});
  streams.refusedAfter(1);
  assert.deepEqual([seen.destroyed, unseen.destroyed, unseen.rstCode], [false, true, ErrorCode.REFUSED_STREAM]);
});
