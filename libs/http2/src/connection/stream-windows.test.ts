import assert from 'node:assert/strict';
import { beforeEach, describe, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { ErrorCode, FrameType } from '../codes.ts';
import { PREFACE, settingsFrame } from '../frames.ts';
import { SETTINGS, streamsOf } from '../testing.ts';
import { closings } from './closings.ts';

describe('stream windows', () => {
  // All streams of a process share one list of ends. A test begins with a turn of the event loop in which none has ended.
  beforeEach(async () => {
    await new Promise<void>((done) => closings.add(done));
    await new Promise<void>((next) => setImmediate(next));
  });

  const NOTHING = Buffer.alloc(0);
  const HELLO = Buffer.concat([PREFACE, settingsFrame({})]);
  const { RST_STREAM, DATA, WINDOW_UPDATE } = FrameType;

  test('a change of the initial window looks at streams only where it grows, and once a turn', async (t) => {
    const { streams, open } = streamsOf('server', { maxConcurrentStreams: 10_000 });
    for (let id = 1; id < 20_000; id += 2) open(id);
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
    const { streams, open, sent } = streamsOf('server');
    const stream = open(1);
    streams.adopt({ initialWindowSize: 10 });
    stream.write(Buffer.alloc(25));
    const frames = await sent();
    streams.adopt({ initialWindowSize: 5 });
    streams.adopt({ initialWindowSize: 20 });
    while (frames.length < 2) frames.push(...(await sent()));
    stream.widen(100);
    while (frames.length < 3) frames.push(...(await sent()));
    assert.deepEqual(
      frames,
      [10, 10, 5].map((bytes) => [DATA, 1, bytes]),
    );
  });

  test('DATA on a stream that has ended counts for the connection’s window alone', async () => {
    const { streams, open, reading, ends, sent } = streamsOf('server');
    reading.read(HELLO);
    open(1);
    streams.receiveReset(1, ErrorCode.CANCEL);
    reading.data(1, NOTHING, 0, false, 2 ** 30);
    assert.deepEqual(ends, [[1, ErrorCode.CANCEL]]);
    assert.deepEqual(await sent(), [[WINDOW_UPDATE, 0, 2 ** 30]]);
  });

  const quiet: [what: string, bytes: number, padding: number][] = [
    ['empty DATA', 0, 0],
    ['padding', 0, 1_000],
    ['padding with little else', 1, 999],
  ];

  for (const [what, bytes, padding] of quiet) {
    test(`${what} gives back nothing that is unread, and widens no window`, async () => {
      const { open, sent } = streamsOf('server');
      const stream = open(1);
      stream.receiveData(Buffer.alloc(SETTINGS.initialWindowSize - 40_000), 0, false);
      for (let n = 0; n < 39; n++) stream.receiveData(Buffer.alloc(bytes), padding, false);
      const given = (await sent()).filter(([type]) => type === WINDOW_UPDATE).map(([, , by]) => by);
      assert.ok(given.reduce((sum, by) => sum + by, 0) <= 39 * padding, `${given}`);
      assert.equal(given.length, padding > 0 ? 1 : 0);
    });
  }

  test('more padding than its window resets a stream', async () => {
    const { open, sent } = streamsOf('server', { initialWindowSize: 1024 });
    open(1).receiveData(NOTHING, 1025, false);
    assert.deepEqual(await sent(), [[RST_STREAM, 1, ErrorCode.FLOW_CONTROL_ERROR]]);
  });

  test('padding alone gives back itself, and no more', async () => {
    const { open, sent } = streamsOf('server', { initialWindowSize: 1024 });
    const stream = open(1);
    for (let n = 0; n < 8; n++) stream.receiveData(NOTHING, 256, false);
    const update = [WINDOW_UPDATE, 1, 512];
    assert.deepEqual(await sent(), [update, update, update, update]);
  });
});
