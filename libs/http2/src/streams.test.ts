import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { ConnectionError, ErrorCode, FrameType } from './codes.ts';
import type { Http2Stream } from './stream.ts';
import { Streams } from './streams.ts';
import { recorded, SETTINGS } from './testing.ts';

const HEAD = { ':method': 'CONNECT', ':authority': 'h:1' };
const SECTION = Object.entries(HEAD);

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
  assert.equal(streams.accept(1, SECTION)?.id, 1);
  assert.equal(streams.accept(3, SECTION), undefined);
  streams.get(1)?.close();
  streams.refuseNew();
  assert.equal(streams.accept(5, SECTION), undefined);
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

test('a GOAWAY that names no earlier stream than the one before looks at none', (t) => {
  const { streams } = streamsOf('client');
  for (let n = 0; n < 5; n++) streams.request(HEAD).on('error', () => {});
  const looks = t.mock.method(streams, 'values');
  for (const last of [7, 7, 9, 2 ** 31 - 1]) streams.refusedAfter(last);
  assert.deepEqual([streams.size, looks.mock.callCount()], [4, 1]);
  streams.refusedAfter(5);
  assert.deepEqual([streams.size, looks.mock.callCount()], [3, 2]);
});

test('a change of the initial window looks at streams only where it grows, and once a turn', async (t) => {
  const { streams } = streamsOf('server', 10_000);
  for (let id = 1; id < 20_000; id += 2) streams.begins(id) && streams.accept(id, SECTION);
  const passes = t.mock.method(streams, 'values');
  for (let round = 1; round <= 1_000; round++) streams.adopt({ initialWindowSize: 65_535 + (round % 100) });
  assert.equal(passes.mock.callCount(), 0);
  await turn();
  await turn();
  assert.equal(passes.mock.callCount(), 1);
  streams.adopt({ initialWindowSize: 1 });
  await turn();
  assert.equal(passes.mock.callCount(), 1);
});

test('what waited for a window is sent when the initial window has grown, within what it grew by', async () => {
  const { streams, frames } = streamsOf('server');
  const stream = streams.accept(1, SECTION);
  streams.adopt({ initialWindowSize: 10 });
  stream?.write(Buffer.alloc(25));
  await turn();
  streams.adopt({ initialWindowSize: 5 });
  streams.adopt({ initialWindowSize: 20 });
  const sent = () => frames.filter((frame) => frame.length !== 9).map(({ length }) => length);
  while (sent().length < 2) await turn();
  assert.deepEqual(sent(), [10, 10]);
  stream?.allow(100);
  while (sent().length < 3) await turn();
  assert.deepEqual(sent(), [10, 10, 5]);
});

test('a server answers what comes for a stream that the other side has ended, and passes over what may be on its way', async () => {
  const { streams, frames } = streamsOf('server');
  for (const id of [1, 3]) streams.begins(id) && streams.accept(id, SECTION);
  streams.receiveReset(1, ErrorCode.CANCEL);
  streams.get(3)?.close();
  await turn();
  frames.length = 0;
  for (const id of [1, 3]) {
    streams.late(id);
    streams.lateSection(id, [['trailer', 'x']]);
  }
  await turn();
  assert.deepEqual(
    frames.map((frame) => [frame.readUInt32BE(5), frame.readUInt32BE(9)]),
    [
      [1, ErrorCode.STREAM_CLOSED],
      [1, ErrorCode.STREAM_CLOSED],
    ],
  );
  assert.throws(() => streams.lateSection(1, SECTION), ConnectionError);
});

const resetting: [what: string, counted: boolean, end: (stream: Http2Stream) => void][] = [
  ['a reset of our own choice', false, (stream) => stream.close(ErrorCode.INTERNAL_ERROR)],
  ['a stream error of the other side', true, (stream) => stream.allow(0)],
];

for (const [what, counted, end] of resetting) {
  test(`${what} counts ${counted ? 'once' : 'not at all'} among the resets, on either side`, () => {
    for (const role of ['client', 'server'] as const) {
      const { streams } = streamsOf(role);
      for (let n = 0; n <= 10_000; n++) {
        streams.resets.check();
        const id = 2 * n + 1;
        const stream = role === 'client' ? streams.request(HEAD) : streams.begins(id) && streams.accept(id, SECTION);
        assert.ok(stream);
        stream.on('error', () => {});
        end(stream);
      }
      assert.equal(streams.size, 0);
      if (counted) assert.throws(() => streams.resets.check(), ConnectionError);
      else streams.resets.check();
    }
  });
}

test('requests that are taken back before their answer are counted, and others are not', () => {
  const most = 10_000;
  const { streams } = streamsOf('server', most);
  const open = (id: number) => streams.begins(id) && streams.accept(id, SECTION);
  for (let n = 0; n <= most; n++) {
    const stream = open(2 * n + 1);
    if (stream) stream.headersSent = true;
    streams.receiveReset(2 * n + 1, ErrorCode.CANCEL);
  }
  streams.resets.check();
  for (let n = most + 1; n <= 2 * most + 1; n++) {
    streams.resets.check();
    open(2 * n + 1);
    streams.receiveReset(2 * n + 1, ErrorCode.CANCEL);
  }
  assert.throws(() => streams.resets.check(), ConnectionError);
});

const quiet: [what: string, bytes: number, padding: number][] = [
  ['empty DATA', 0, 0],
  ['padding', 0, 1_000],
  ['padding with little else', 1, 999],
];

for (const [what, bytes, padding] of quiet) {
  test(`${what} gives back nothing that is unread, and widens no window`, async () => {
    const { streams, frames } = streamsOf('server');
    const stream = streams.accept(1, SECTION);
    stream?.pause();
    stream?.receiveData(Buffer.alloc(SETTINGS.initialWindowSize - 40_000), 0, false);
    for (let n = 0; n < 39; n++) stream?.receiveData(Buffer.alloc(bytes), padding, false);
    await turn();
    const given = frames.filter((frame) => frame[3] === FrameType.WINDOW_UPDATE).map((frame) => frame.readUInt32BE(9));
    assert.ok(given.reduce((sum, by) => sum + by, 0) <= 39 * padding, `${given}`);
    assert.equal(given.length, padding > 0 ? 1 : 0);
    stream?.on('error', () => {}).close();
  });
}
