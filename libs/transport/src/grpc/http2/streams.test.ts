import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { Writable } from 'node:stream';
import { afterEach, mock, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { ConnectionError, ErrorCode, type Field, FrameReader, FrameType, MAX_WINDOW } from '@isthmus/http2';
import { Output } from './output.ts';
import type { ServerStream } from './stream.ts';
import { MAX_RESETS, Streams } from './streams.ts';

afterEach(() => mock.restoreAll());

const REQUEST: readonly Field[] = [
  [':method', 'POST'],
  [':scheme', 'http'],
  [':path', '/a/B'],
];
const NOTHING = Buffer.alloc(0);
const WINDOW = 1024;

/** Streams of a peer that is played by the test, and what became of them. */
function streamsOf(maxStreams = 1000) {
  const frames: [type: number, id: number, value: number][] = [];
  const reader = new FrameReader(
    {
      frame: (type, _flags, id, payload) =>
        frames.push([type, id, payload.length === 4 ? payload.readUInt32BE(0) : -1]),
      data: (id, { length }) => frames.push([FrameType.DATA, id, length]),
    },
    16_384,
  );
  const socket = new Writable({
    write(chunk: Buffer, _encoding, done) {
      reader.read(chunk);
      done();
    },
  });
  const output = new Output(socket as Socket, assert.ifError);
  const served = new Map<number, ServerStream>();
  const ends: [id: number, code: number | undefined | 'remote'][] = [];
  const counts = { idle: 0 };
  const streams = new Streams(
    output,
    {
      limits: { streamWindow: WINDOW, maxStreams },
      accept: (stream) => {
        const { id } = stream;
        served.set(id, stream);
        stream.serve({
          data() {},
          drain() {},
          remoteEnd: () => ends.push([id, 'remote']),
          close: (code) => ends.push([id, code]),
        });
      },
    },
    {
      idle() {
        counts.idle++;
      },
    },
  );
  const sent = () => {
    output.flush();
    return frames;
  };
  return { streams, served, ends, counts, sent };
}

const broken = (code: number) => (error: unknown) => error instanceof ConnectionError && error.code === code;

test('streams beyond the most are refused, until one has ended', () => {
  const { streams, served, sent } = streamsOf(1);
  for (const id of [1, 3]) streams.section(id, REQUEST, false);
  served.get(1)?.reset(ErrorCode.CANCEL);
  streams.section(5, REQUEST, false);
  assert.deepEqual([...served.keys()], [1, 5]);
  assert.deepEqual(sent(), [
    [FrameType.RST_STREAM, 3, ErrorCode.REFUSED_STREAM],
    [FrameType.RST_STREAM, 1, ErrorCode.CANCEL],
  ]);
  assert.deepEqual([streams.size, streams.last], [1, 5]);
});

test('a stream beyond our GOAWAY is not served, and breaks nothing', () => {
  const { streams, served, sent } = streamsOf();
  streams.section(1, REQUEST, false);
  streams.close();
  streams.section(3, REQUEST, false);
  streams.data(3, Buffer.from('a'), 0);
  streams.windowUpdate(3, 1);
  streams.reset(3, ErrorCode.CANCEL);
  assert.deepEqual([...served.keys()], [1]);
  assert.deepEqual([streams.last, sent()], [1, []]);
});

test('a request with no path, and a second one on its stream, are reset', () => {
  const { streams, served, ends, sent } = streamsOf();
  streams.section(3, REQUEST, true);
  streams.section(5, REQUEST.slice(0, 2), false);
  streams.section(7, REQUEST, false);
  streams.section(7, REQUEST, false);
  assert.deepEqual([...served.keys()], [3, 7]);
  assert.deepEqual(ends, [
    [3, 'remote'],
    [7, ErrorCode.PROTOCOL_ERROR],
  ]);
  const resets = [5, 7].map((id) => [FrameType.RST_STREAM, id, ErrorCode.PROTOCOL_ERROR]);
  assert.deepEqual(sent(), resets);
});

test('what comes for a stream that the peer has ended is answered; what may be on its way since before is not', () => {
  const { streams, served, sent } = streamsOf();
  for (const id of [1, 3]) streams.section(id, REQUEST, false);
  streams.reset(1, ErrorCode.CANCEL);
  served.get(3)?.reset(ErrorCode.CANCEL);
  sent().length = 0;
  for (const id of [1, 3]) {
    streams.data(id, Buffer.from('a'), 0);
    streams.dataFrame(id, false);
    streams.section(id, [['trailer', 'x']], true);
  }
  const answer = [FrameType.RST_STREAM, 1, ErrorCode.STREAM_CLOSED];
  assert.deepEqual(sent(), [answer, answer]);
});

type Words = (streams: Streams) => void;

const resetting: [what: string, say: Words, code: number][] = [
  ['a window update of nothing', (streams) => streams.windowUpdate(1, 0), ErrorCode.PROTOCOL_ERROR],
  ['a window beyond 2^31 - 1', (streams) => streams.windowUpdate(1, MAX_WINDOW), ErrorCode.FLOW_CONTROL_ERROR],
  ['more than its window', (streams) => streams.data(1, Buffer.alloc(WINDOW + 1), 0), ErrorCode.FLOW_CONTROL_ERROR],
  ['more padding than its window', (streams) => streams.data(1, NOTHING, WINDOW + 1), ErrorCode.FLOW_CONTROL_ERROR],
  [
    'DATA behind its end',
    (streams) => {
      streams.dataFrame(1, true);
      streams.data(1, Buffer.from('a'), 0);
    },
    ErrorCode.STREAM_CLOSED,
  ],
];

for (const [what, say, code] of resetting) {
  test(`${what} resets its stream alone`, () => {
    const { streams, sent } = streamsOf();
    for (const id of [1, 3]) streams.section(id, REQUEST, false);
    say(streams);
    assert.deepEqual(sent(), [[FrameType.RST_STREAM, 1, code]]);
    assert.equal(streams.size, 1);
  });
}

const breaking: [what: string, say: Words, code: number][] = [
  ['DATA on a stream that was never opened', (streams) => streams.data(3, NOTHING, 0), ErrorCode.PROTOCOL_ERROR],
  ['RST_STREAM on such a stream', (streams) => streams.reset(3, ErrorCode.CANCEL), ErrorCode.PROTOCOL_ERROR],
  ['WINDOW_UPDATE on such a stream', (streams) => streams.windowUpdate(3, 1), ErrorCode.PROTOCOL_ERROR],
  ['a window update of nothing', (streams) => streams.windowUpdate(0, 0), ErrorCode.PROTOCOL_ERROR],
  ['a window beyond 2^31 - 1', (streams) => streams.windowUpdate(0, MAX_WINDOW), ErrorCode.FLOW_CONTROL_ERROR],
  ['a request on a stream that has ended', (streams) => again(streams, 1), ErrorCode.STREAM_CLOSED],
  ['a request on a stream that was passed over', (streams) => again(streams, 5), ErrorCode.PROTOCOL_ERROR],
  ['a request on an even stream', (streams) => streams.section(2, REQUEST, false), ErrorCode.PROTOCOL_ERROR],
  [
    'an initial window that widens a stream’s beyond 2^31 - 1',
    (streams) => {
      streams.windowUpdate(1, 1);
      streams.resize(MAX_WINDOW);
    },
    ErrorCode.FLOW_CONTROL_ERROR,
  ],
];

/** Opens a stream, and after its end stream 1 again. */
function again(streams: Streams, id: number): void {
  if (id > 1) streams.section(id, REQUEST, false);
  streams.reset(1, ErrorCode.CANCEL);
  streams.section(1, REQUEST, false);
}

for (const [what, say, code] of breaking) {
  test(`${what} breaks the connection`, () => {
    const { streams } = streamsOf();
    streams.section(1, REQUEST, false);
    assert.throws(() => say(streams), broken(code));
  });
}

test('DATA on a stream that has ended counts for the connection’s window alone', () => {
  const { streams, ends, sent } = streamsOf();
  streams.section(1, REQUEST, false);
  streams.reset(1, ErrorCode.CANCEL);
  streams.data(1, NOTHING, 2 ** 30);
  assert.deepEqual(ends, [[1, ErrorCode.CANCEL]]);
  assert.deepEqual(sent(), [[FrameType.WINDOW_UPDATE, 0, 2 ** 30]]);
});

const endings: [what: string, counted: boolean, end: (streams: Streams, stream: ServerStream) => void][] = [
  ['the peer’s CANCEL', true, (streams, { id }) => streams.reset(id, ErrorCode.CANCEL)],
  ['another reset of the peer’s', true, (streams, { id }) => streams.reset(id, ErrorCode.INTERNAL_ERROR)],
  ['our reset for what the peer did', true, (streams, { id }) => streams.windowUpdate(id, 0)],
  ['the peer’s NO_ERROR', true, (streams, { id }) => streams.reset(id, ErrorCode.NO_ERROR)],
  ['our INTERNAL_ERROR', false, (_, stream) => stream.reset(ErrorCode.INTERNAL_ERROR)],
  ['more than its window', true, (streams, { id }) => streams.data(id, Buffer.alloc(WINDOW + 1), 0)],
  ['our CANCEL', false, (_, stream) => stream.reset(ErrorCode.CANCEL)],
  ['the end of both sides', false, (_, stream) => stream.end(NOTHING)],
  [
    'a reset that comes behind the end',
    false,
    (streams, stream) => {
      stream.end(NOTHING);
      streams.reset(stream.id, ErrorCode.CANCEL);
    },
  ],
];

for (const [what, counted, end] of endings) {
  test(`${what} counts ${counted ? 'once' : 'not at all'} among the resets`, () => {
    // A clock that stands still: all of them fall into one window of time.
    mock.method(performance, 'now', () => 0);
    const { streams, served } = streamsOf();
    for (let n = 1; n <= MAX_RESETS + 1; n++) {
      streams.resets.check();
      const id = 2 * n - 1;
      streams.section(id, REQUEST, false);
      end(streams, served.get(id) as ServerStream);
    }
    assert.equal(streams.size, 0);
    if (counted) assert.throws(() => streams.resets.check(), broken(ErrorCode.ENHANCE_YOUR_CALM));
    else streams.resets.check();
  });
}

test('the end of all is told once, when the last has ended', () => {
  const { streams, ends, counts } = streamsOf();
  for (const id of [1, 3, 5]) streams.section(id, REQUEST, false);
  streams.reset(3, ErrorCode.CANCEL);
  assert.equal(counts.idle, 0);
  streams.end();
  streams.end();
  assert.deepEqual(
    ends,
    [3, 1, 5].map((id) => [id, ErrorCode.CANCEL]),
  );
  assert.deepEqual([streams.size, counts.idle], [0, 1]);
});

test('a change of the initial window looks at streams only where it grows, and once a turn', async () => {
  const { streams, served } = streamsOf(10_000);
  for (let id = 1; id < 20_000; id += 2) streams.section(id, REQUEST, false);
  let looks = 0;
  for (const stream of served.values()) {
    stream.wake = () => {
      looks++;
    };
  }
  for (let round = 1; round <= 1_000; round++) streams.resize(65_535 + (round % 100));
  assert.equal(looks, 0);
  await turn();
  await turn();
  assert.equal(looks, served.size);
  streams.resize(1);
  await turn();
  assert.equal(looks, served.size);
});

test('what waited for a window is sent when the initial window has grown, within what it grew by', async () => {
  const { streams, served, sent } = streamsOf();
  streams.section(1, REQUEST, false);
  const stream = served.get(1) as ServerStream;
  streams.resize(10);
  stream.write(Buffer.alloc(25));
  streams.resize(5);
  streams.resize(20);
  await turn();
  await turn();
  assert.deepEqual(sent(), [
    [FrameType.DATA, 1, 10],
    [FrameType.DATA, 1, 10],
  ]);
  streams.windowUpdate(1, 100);
  assert.deepEqual(sent().at(-1), [FrameType.DATA, 1, 5]);
});

test('padding gives back itself alone, and widens no window', () => {
  const { streams, sent } = streamsOf();
  streams.section(1, REQUEST, false);
  for (let n = 0; n < 8; n++) streams.data(1, NOTHING, WINDOW / 4);
  const update = [FrameType.WINDOW_UPDATE, 1, WINDOW / 2];
  assert.deepEqual(sent(), [update, update, update, update]);
});
