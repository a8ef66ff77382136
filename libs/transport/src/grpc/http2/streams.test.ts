import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { Writable } from 'node:stream';
import { afterEach, mock, test } from 'node:test';
import { ConnectionError, ErrorCode, FrameReader, FrameType, MAX_WINDOW } from '@isthmus/http2';
import { Output } from './output.ts';
import type { Field } from './request.ts';
import { ResetCounter } from './reset-counter.ts';
import type { ServerStream } from './stream.ts';
import { Streams } from './streams.ts';

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
      data: (id) => frames.push([FrameType.DATA, id, -1]),
    },
    16_384,
  );
  const socket = new Writable({
    write(chunk: Buffer, _encoding, done) {
      reader.read(chunk);
      done();
    },
  });
  const output = new Output(socket as Socket);
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
  for (const id of [1, 3]) streams.headers(id, REQUEST, false);
  served.get(1)?.reset(ErrorCode.CANCEL);
  streams.headers(5, REQUEST, false);
  assert.deepEqual([...served.keys()], [1, 5]);
  assert.deepEqual(sent(), [
    [FrameType.RST_STREAM, 3, ErrorCode.REFUSED_STREAM],
    [FrameType.RST_STREAM, 1, ErrorCode.CANCEL],
  ]);
  assert.deepEqual([streams.size, streams.last], [1, 5]);
});

test('a stream beyond our GOAWAY is not served, and breaks nothing', () => {
  const { streams, served, sent } = streamsOf();
  streams.headers(1, REQUEST, false);
  streams.close();
  streams.headers(3, REQUEST, false);
  streams.data(3, Buffer.from('a'), 0);
  streams.windowUpdate(3, 1);
  streams.reset(3, ErrorCode.CANCEL);
  assert.deepEqual([...served.keys()], [1]);
  assert.deepEqual([streams.last, sent()], [1, []]);
});

test('a request with an id that is not new, or with no path, is not served', () => {
  const { streams, served, ends, sent } = streamsOf();
  streams.headers(3, REQUEST, true);
  streams.headers(1, REQUEST, false);
  streams.headers(5, REQUEST.slice(0, 2), false);
  streams.headers(7, REQUEST, false);
  streams.headers(7, REQUEST, false);
  assert.deepEqual([...served.keys()], [3, 7]);
  assert.deepEqual(ends, [
    [3, 'remote'],
    [7, ErrorCode.PROTOCOL_ERROR],
  ]);
  const resets = [5, 7].map((id) => [FrameType.RST_STREAM, id, ErrorCode.PROTOCOL_ERROR]);
  assert.deepEqual(sent(), resets);
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
      streams.dataEnds(1);
      streams.data(1, Buffer.from('a'), 0);
    },
    ErrorCode.STREAM_CLOSED,
  ],
];

for (const [what, say, code] of resetting) {
  test(`${what} resets its stream alone`, () => {
    const { streams, sent } = streamsOf();
    for (const id of [1, 3]) streams.headers(id, REQUEST, false);
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
  [
    'an initial window that widens a stream’s beyond 2^31 - 1',
    (streams) => {
      streams.windowUpdate(1, 1);
      streams.resize(MAX_WINDOW);
    },
    ErrorCode.FLOW_CONTROL_ERROR,
  ],
];

for (const [what, say, code] of breaking) {
  test(`${what} breaks the connection`, () => {
    const { streams } = streamsOf();
    streams.headers(1, REQUEST, false);
    assert.throws(() => say(streams), broken(code));
  });
}

test('DATA on a stream that has ended counts for the connection’s window alone', () => {
  const { streams, ends, sent } = streamsOf();
  streams.headers(1, REQUEST, false);
  streams.reset(1, ErrorCode.CANCEL);
  streams.data(1, NOTHING, 2 ** 30);
  assert.deepEqual(ends, [[1, ErrorCode.CANCEL]]);
  assert.deepEqual(sent(), [[FrameType.WINDOW_UPDATE, 0, 2 ** 30]]);
});

const endings: [what: string, counted: boolean, end: (streams: Streams, stream: ServerStream) => void][] = [
  ['the peer’s CANCEL', true, (streams, { id }) => streams.reset(id, ErrorCode.CANCEL)],
  ['another reset of the peer’s', true, (streams, { id }) => streams.reset(id, ErrorCode.INTERNAL_ERROR)],
  ['our reset for what the peer did', true, (streams, { id }) => streams.windowUpdate(id, 0)],
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
    for (let n = 1; n <= ResetCounter.most + 1; n++) {
      assert.equal(streams.resets.tooMany, false, `after ${n - 1}`);
      const id = 2 * n - 1;
      streams.headers(id, REQUEST, false);
      end(streams, served.get(id) as ServerStream);
    }
    assert.equal(streams.size, 0);
    assert.equal(streams.resets.tooMany, counted);
  });
}

test('the end of all is told once, when the last has ended', () => {
  const { streams, ends, counts } = streamsOf();
  for (const id of [1, 3, 5]) streams.headers(id, REQUEST, false);
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
