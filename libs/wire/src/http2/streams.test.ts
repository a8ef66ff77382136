import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, mock, test } from 'node:test';
import {
  ConnectionError,
  dataHead,
  ErrorCode,
  FrameType,
  MAX_WINDOW,
  PREFACE,
  SETTINGS_ACK,
  settingsFrame,
  windowUpdateFrame,
} from './frames.ts';
import type { Field } from './heads.ts';
import type { Http2Stream } from './stream.ts';
import { ClientIds } from './streams.ts';
import { CONFIG, HEAD, raw, streamsOf } from './testing.ts';
import { closings } from './ticks.ts';

describe('streams', () => {
  // All streams of a process share one list of ends. A test begins with a tick of the event loop in which none has ended.
  beforeEach(async () => {
    await new Promise<void>((done) => closings.add(done));
    await new Promise<void>((next) => setImmediate(next));
  });

  const SECTION: readonly Field[] = Object.entries(HEAD);
  const NOTHING = Buffer.alloc(0);
  const HELLO = Buffer.concat([PREFACE, settingsFrame({})]);
  const { RST_STREAM, DATA } = FrameType;

  const broken = (code: number) => (error: unknown) => error instanceof ConnectionError && error.code === code;
  const protocolError = broken(ErrorCode.PROTOCOL_ERROR);

  /** A server whose streams 1 and 3 are open, and whose client sends these frames. */
  function serverTold(...frames: Buffer[]) {
    const server = streamsOf('server', { windowBytes: 1024 });
    for (const id of [1, 3]) server.open(id);
    const say = () => server.reading.read(Buffer.concat([HELLO, ...frames]));
    return { ...server, say };
  }

  const data = (id: number, bytes: number, ends = false) => raw(DATA, ends ? 1 : 0, id, Buffer.alloc(bytes));

  test('a server accepts ids that rise, and only those of a client', () => {
    const { streams, open, opened } = streamsOf('server');
    for (const id of [1, 5]) open(id);
    assert.deepEqual([opened, streams.last], [[1, 5], 5]);
    assert.throws(() => open(3), protocolError);
    assert.throws(() => open(8), protocolError);
    assert.equal(streams.known(3, 'DATA'), undefined, 'passed over');
    for (const id of [0, 7]) assert.throws(() => streams.known(id, 'DATA'), protocolError);
  });

  test('a client accepts frames of what it opened, and no stream of the other side', () => {
    const { streams, open } = streamsOf('client');
    const [first, second] = [open(1), open(3)];
    assert.deepEqual([first.id, second.id], [1, 3]);
    assert.equal(streams.known(3, 'DATA'), second);
    for (const id of [0, 2, 5]) assert.throws(() => streams.known(id, 'HEADERS'), protocolError);
    assert.throws(() => streams.receiveHead({ stream: 5, fields: SECTION, ends: false }), protocolError);
  });

  test('streams beyond the most are refused, until one has ended', async () => {
    const { streams, open, opened, sent } = streamsOf('server', { streams: 1 });
    for (const id of [1, 3]) open(id);
    streams.get(1)?.reset(ErrorCode.CANCEL);
    open(5);
    assert.deepEqual([opened, streams.size, streams.last], [[1, 5], 1, 5]);
    assert.deepEqual(await sent(), [
      [RST_STREAM, 3, ErrorCode.REFUSED_STREAM],
      [RST_STREAM, 1, ErrorCode.CANCEL],
    ]);
  });

  test('a stream beyond our GOAWAY is not served, and breaks nothing', async () => {
    const { streams, open, opened, reading, sent } = streamsOf('server');
    reading.read(HELLO);
    open(1);
    streams.refuseNew();
    open(3);
    reading.read(Buffer.concat([data(3, 1), windowUpdateFrame(3, 1)]));
    streams.receiveReset(3, ErrorCode.CANCEL);
    assert.deepEqual([opened, streams.last, await sent()], [[1], 1, []]);
  });

  test('a request with no path, and a second one on its stream, are reset', async () => {
    const { open, opened, ends, sent } = streamsOf('server');
    const post: Field[] = [
      [':method', 'POST'],
      [':scheme', 'http'],
      [':path', '/'],
    ];
    open(3, post, true);
    open(5, post.slice(0, 2));
    for (let n = 0; n < 2; n++) open(7, post);
    assert.deepEqual(opened, [3, 7]);
    assert.deepEqual(ends, [
      [3, 'remote'],
      [7, ErrorCode.PROTOCOL_ERROR],
    ]);
    assert.deepEqual(await sent(), [
      [RST_STREAM, 5, ErrorCode.PROTOCOL_ERROR],
      [RST_STREAM, 7, ErrorCode.PROTOCOL_ERROR],
    ]);
  });

  test('a client opens no more than the other side accepts, and hears when the last has ended', () => {
    const { streams, open, counts } = streamsOf('client');
    streams.adopt({ maxConcurrentStreams: 2 });
    const both = [open(1), open(3)];
    assert.throws(() => open(5), /allows only 2 streams/);
    for (const stream of both) stream.reset(ErrorCode.CANCEL);
    assert.deepEqual([streams.size, counts.idle], [0, 1]);
  });

  test('what the other side has not seen when it goes away is refused', () => {
    const { streams, open } = streamsOf('client');
    const [seen, unseen] = [open(1), open(3)];
    streams.refusedAfter(1);
    assert.deepEqual([seen.closed, unseen.closed, unseen.code], [false, true, ErrorCode.REFUSED_STREAM]);
  });

  test('a GOAWAY that names no earlier stream than the one before looks at none', (t) => {
    const { streams, open } = streamsOf('client');
    for (let n = 0; n < 5; n++) open(2 * n + 1);
    const looks = t.mock.method(streams, 'values');
    for (const last of [7, 7, 9, 2 ** 31 - 1]) streams.refusedAfter(last);
    assert.deepEqual([streams.size, looks.mock.callCount()], [4, 1]);
    streams.refusedAfter(5);
    assert.deepEqual([streams.size, looks.mock.callCount()], [3, 2]);
  });

  test('what comes for a stream that the other side has ended is answered; what may be on its way since before is not', async () => {
    const { streams, open, reading, sent } = streamsOf('server');
    reading.read(HELLO);
    for (const id of [1, 3]) open(id);
    streams.receiveReset(1, ErrorCode.CANCEL);
    streams.get(3)?.reset(ErrorCode.CANCEL);
    await sent();
    for (const id of [1, 3]) {
      reading.read(data(id, 1));
      streams.receiveHead({ stream: id, fields: [['trailer', 'x']], ends: true });
    }
    const answer = [RST_STREAM, 1, ErrorCode.STREAM_CLOSED];
    assert.deepEqual(await sent(), [answer, answer]);
    assert.throws(() => open(1), ConnectionError);
  });

  const resetting: [what: string, frames: Buffer[], code: number][] = [
    ['a window update with an increment of 0', [windowUpdateFrame(1, 0)], ErrorCode.PROTOCOL_ERROR],
    ['a window beyond 2^31 - 1', [windowUpdateFrame(1, MAX_WINDOW)], ErrorCode.FLOW_CONTROL_ERROR],
    ['more than its window', [SETTINGS_ACK, data(1, 1025)], ErrorCode.FLOW_CONTROL_ERROR],
    ['DATA behind its end', [dataHead(1, 0, true), data(1, 1)], ErrorCode.STREAM_CLOSED],
  ];

  for (const [what, frames, code] of resetting) {
    test(`${what} resets its stream alone`, async () => {
      const { streams, say, sent } = serverTold(...frames);
      say();
      const resets = (await sent()).filter(([type]) => type === RST_STREAM);
      assert.deepEqual([resets[0], streams.size], [[RST_STREAM, 1, code], 1]);
    });
  }

  const breaking: [what: string, frames: Buffer[], code: number][] = [
    ['DATA on a stream that was never opened', [data(5, 0)], ErrorCode.PROTOCOL_ERROR],
    ['RST_STREAM on such a stream', [raw(RST_STREAM, 0, 5, Buffer.alloc(4))], ErrorCode.PROTOCOL_ERROR],
    ['WINDOW_UPDATE on such a stream', [windowUpdateFrame(5, 1)], ErrorCode.PROTOCOL_ERROR],
    [
      'an initial window that widens a stream’s beyond 2^31 - 1',
      [windowUpdateFrame(1, 1), settingsFrame({ initialWindowSize: MAX_WINDOW })],
      ErrorCode.FLOW_CONTROL_ERROR,
    ],
  ];

  for (const [what, frames, code] of breaking) {
    test(`${what} breaks the connection`, () => assert.throws(serverTold(...frames).say, broken(code)));
  }

  test('an answer abandons what is left of its request only where that is the rule', async () => {
    for (const abandonsRequests of [true, false]) {
      const { open, ends, sent } = streamsOf('server', { rules: { abandonsRequests } });
      open(1).answer(NOTHING, true);
      const resets = (await sent()).filter(([type]) => type === RST_STREAM);
      const left = abandonsRequests ? [[RST_STREAM, 1, ErrorCode.NO_ERROR]] : [];
      assert.deepEqual([resets, ends], [left, abandonsRequests ? [[1, undefined]] : []]);
    }
  });

  test('the end of all is told once, when the last has ended', () => {
    const { streams, open, ends, counts } = streamsOf('server');
    for (const id of [1, 3, 5]) open(id);
    streams.receiveReset(3, ErrorCode.CANCEL);
    assert.equal(counts.idle, 0);
    for (let n = 0; n < 2; n++) streams.end(new Error('it is over'));
    assert.deepEqual(
      ends,
      [3, 1, 5].map((id) => [id, ErrorCode.CANCEL]),
    );
    assert.deepEqual([streams.size, counts.idle], [0, 1]);
  });
});

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

describe('stream resets', () => {
  afterEach(() => mock.restoreAll());

  const NOTHING = Buffer.alloc(0);
  const tooMany = (error: unknown) => error instanceof ConnectionError && error.code === ErrorCode.ENHANCE_YOUR_CALM;

  type Ending = (stream: Http2Stream, reset: (code: number) => void) => void;

  const ANSWERED = 'once its request is answered';

  /** What ends a stream, and whether that counts among the resets of those who count all, and of those who spare answered requests. */
  const endings: [what: string, counted: boolean, sparing: boolean, end: Ending][] = [
    ['the other side’s CANCEL', true, true, (_, reset) => reset(ErrorCode.CANCEL)],
    ['another reset of the other side', true, true, (_, reset) => reset(ErrorCode.INTERNAL_ERROR)],
    ['the other side’s NO_ERROR', true, true, (_, reset) => reset(ErrorCode.NO_ERROR)],
    ['a stream error of the other side', true, true, (stream) => stream.widen(0)],
    ['more than its window', true, true, (stream) => stream.receiveData(Buffer.alloc(100_000), 0, false)],
    ['our INTERNAL_ERROR', false, false, (stream) => stream.reset(ErrorCode.INTERNAL_ERROR)],
    ['our CANCEL', false, false, (stream) => stream.reset(ErrorCode.CANCEL)],
    [
      `the other side’s CANCEL ${ANSWERED}`,
      true,
      false,
      (stream, reset) => {
        stream.answer(NOTHING);
        reset(ErrorCode.CANCEL);
      },
    ],
    [
      'the end of both sides, and a reset behind it',
      false,
      false,
      (stream, reset) => {
        stream.end(NOTHING);
        stream.receiveEnd();
        reset(ErrorCode.CANCEL);
      },
    ],
  ];

  for (const [what, all, sparing, end] of endings) {
    for (const [countsAnswered, counted] of [
      [true, all],
      [false, sparing],
    ] as const) {
      const who = countsAnswered ? 'those who count all' : 'those who spare answered requests';
      test(`${what} counts ${counted ? 'once' : 'not at all'} among the resets, for ${who}`, () => {
        // A clock that stands still: all of them fall into one window of time.
        mock.method(performance, 'now', () => 0);
        const maxResets = 300;
        const { streams, open } = streamsOf('server', { rules: { countsAnswered }, resets: maxResets });
        for (let n = 0; n <= maxResets; n++) {
          streams.resets.check();
          const id = 2 * n + 1;
          end(open(id), (code) => streams.receiveReset(id, code));
        }
        assert.equal(streams.size, 0);
        if (counted) assert.throws(() => streams.resets.check(), tooMany);
        else streams.resets.check();
      });
    }
  }

  test('stream errors of a server count for its client, too', () => {
    const { streams, open } = streamsOf('client', { resets: 10 });
    for (let n = 0; n <= 10; n++) open(2 * n + 1).widen(0);
    assert.throws(() => streams.resets.check(), tooMany);
  });
});

describe('stream windows', () => {
  // All streams of a process share one list of ends. A test begins with a tick of the event loop in which none has ended.
  beforeEach(async () => {
    await new Promise<void>((done) => closings.add(done));
    await new Promise<void>((next) => setImmediate(next));
  });

  const NOTHING = Buffer.alloc(0);
  const HELLO = Buffer.concat([PREFACE, settingsFrame({})]);
  const { RST_STREAM, DATA, WINDOW_UPDATE } = FrameType;

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
      stream.receiveData(Buffer.alloc(CONFIG.windowBytes - 40_000), 0, false);
      for (let n = 0; n < 39; n++) stream.receiveData(Buffer.alloc(bytes), padding, false);
      const given = (await sent()).filter(([type]) => type === WINDOW_UPDATE).map(([, , by]) => by);
      assert.ok(given.reduce((sum, by) => sum + by, 0) <= 39 * padding, `${given}`);
      assert.equal(given.length, padding > 0 ? 1 : 0);
    });
  }

  test('more padding than its window resets a stream', async () => {
    const { open, sent } = streamsOf('server', { windowBytes: 1024 });
    open(1).receiveData(NOTHING, 65_536, false);
    assert.deepEqual(await sent(), [[RST_STREAM, 1, ErrorCode.FLOW_CONTROL_ERROR]]);
  });

  test('padding alone gives back itself, and no more', async () => {
    const { open, sent } = streamsOf('server', { windowBytes: 1024 });
    const stream = open(1);
    for (let n = 0; n < 8; n++) stream.receiveData(NOTHING, 256, false);
    const update = [WINDOW_UPDATE, 1, 512];
    assert.deepEqual(await sent(), [update, update, update, update]);
  });
});
