import assert from 'node:assert/strict';
import { beforeEach, describe, test } from 'node:test';
import { ConnectionError, ErrorCode, FrameType, MAX_WINDOW } from '../codes.ts';
import { dataHead, PREFACE, settingsFrame, windowUpdateFrame } from '../frames.ts';
import type { Field } from '../section.ts';
import { HEAD, raw, streamsOf } from '../testing.ts';
import { closings } from './closings.ts';

describe('streams', () => {
  // All streams of a process share one list of ends. A test begins with a turn of the event loop in which none has ended.
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
    const server = streamsOf('server', { initialWindowSize: 1024 });
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
    const { streams, open, opened, sent } = streamsOf('server', { maxConcurrentStreams: 1 });
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
    ['more than its window', [data(1, 1025)], ErrorCode.FLOW_CONTROL_ERROR],
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
