import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { WIRE } from '../defaults.ts';
import { Http2Link } from '../link/link.ts';
import {
  dataHead,
  ErrorCode,
  FrameType,
  goawayFrame,
  headersFrames,
  PREFACE,
  rstStreamFrame,
  settingsFrame,
  windowUpdateFrame,
} from './frames.ts';
import { encodeHead, HeadReader } from './heads.ts';
import { FrameReader } from './reading.ts';
import { CONFIG, raw, socketPair } from './testing.ts';
import { Readers } from './ticks.ts';

const HEAD = encodeHead({ ':method': 'CONNECT', ':authority': 'h:1' });

/** Short as it comes: an entry of the table, then that entry again and again. */
const LONG = Buffer.concat([
  Buffer.of(0x40),
  encodeHead({ long: 'x'.repeat(4_000) }).subarray(1),
  Buffer.alloc(6, 0x80 | 62),
]);

const NOTHING = Buffer.alloc(0);

function mark(stream: number): Buffer {
  return raw(FrameType.MARK, 0, stream, Buffer.alloc(7));
}

function open(stream: number): Buffer {
  return Buffer.concat(headersFrames(stream, HEAD, false, 16_384));
}

/** What becomes of a server whose peer says this. @returns its GOAWAY */
async function toldBy(config: typeof CONFIG, ...frames: Buffer[]): Promise<{ lastStream: number; code: number }> {
  const [client, socket] = await socketPair();
  const server = new Http2Link({ role: 'server', socket, config });
  server.on('stream', (stream) => stream.on('error', () => {}));
  const received: Buffer[] = [];
  client.on('data', (chunk: Buffer) => received.push(chunk));
  client.write(Buffer.concat(frames));
  await Promise.all([once(server, 'close'), once(client, 'end')]);
  const all = Buffer.concat(received);
  let goaway = { lastStream: -1, code: -1 };
  for (let at = 0; at < all.length; at += 9 + all.readUIntBE(at, 3)) {
    if (all[at + 3] !== FrameType.GOAWAY) continue;
    goaway = { lastStream: all.readUInt32BE(at + 9), code: all.readUInt32BE(at + 13) };
  }
  return goaway;
}

const hello = [PREFACE, settingsFrame({})];

const attacks: [what: string, frames: Buffer[], code: number][] = [
  ['another protocol', [Buffer.from('GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n')], ErrorCode.PROTOCOL_ERROR],
  ['a frame longer than allowed', [...hello, raw(0, 0, 1, Buffer.alloc(0), 2 ** 24 - 1)], ErrorCode.FRAME_SIZE_ERROR],
  ['DATA on a stream that was never opened', [...hello, dataHead(7, 0, true)], ErrorCode.PROTOCOL_ERROR],
  ["a stream with a server's number", [...hello, open(2)], ErrorCode.PROTOCOL_ERROR],
  ['a head that is no HPACK', [...hello, raw(1, 4, 1, Buffer.from([0xff, 0xff]))], ErrorCode.COMPRESSION_ERROR],
  ['a head that never ends', endless(), ErrorCode.ENHANCE_YOUR_CALM],
  [
    'another frame amid a head',
    [...hello, raw(1, 0, 1, HEAD), raw(6, 0, 0, Buffer.alloc(8))],
    ErrorCode.PROTOCOL_ERROR,
  ],
  [
    'CONTINUATION without an end and without a byte',
    [...hello, raw(1, 0, 1, HEAD), ...Array(2000).fill(raw(9, 0, 1, Buffer.alloc(0)))],
    ErrorCode.ENHANCE_YOUR_CALM,
  ],
  ['CONTINUATION without HEADERS', [...hello, raw(9, 4, 1, HEAD)], ErrorCode.PROTOCOL_ERROR],
  ['a push', [...hello, raw(5, 4, 1, HEAD)], ErrorCode.PROTOCOL_ERROR],
  ['a window beyond 2^31 - 1', [...hello, windowUpdateFrame(0, 2 ** 31 - 1)], ErrorCode.FLOW_CONTROL_ERROR],
  ['a window update with an increment of 0', [...hello, windowUpdateFrame(0, 0)], ErrorCode.PROTOCOL_ERROR],
  ['a PING of seven bytes', [...hello, raw(6, 0, 0, Buffer.alloc(7))], ErrorCode.FRAME_SIZE_ERROR],
  ['SETTINGS of seven bytes', [PREFACE, raw(4, 0, 0, Buffer.alloc(7))], ErrorCode.FRAME_SIZE_ERROR],
  ['frames of a byte', [PREFACE, settingsFrame({ maxFrameSize: 1 })], ErrorCode.PROTOCOL_ERROR],
  ['nothing but padding', [...hello, open(1), raw(0, 8, 1, Buffer.from([5, 1]))], ErrorCode.PROTOCOL_ERROR],
  ['a PING ahead of its SETTINGS', [PREFACE, raw(6, 0, 0, Buffer.alloc(8))], ErrorCode.PROTOCOL_ERROR],
  ['an answer to SETTINGS ahead of its own', [PREFACE, raw(4, 1, 0, NOTHING)], ErrorCode.PROTOCOL_ERROR],
  ['an answer to SETTINGS that says something', [...hello, raw(4, 1, 0, Buffer.alloc(6))], ErrorCode.FRAME_SIZE_ERROR],
  ['SETTINGS on a stream', [...hello, raw(4, 0, 1, NOTHING)], ErrorCode.PROTOCOL_ERROR],
  ['PING on a stream', [...hello, raw(6, 0, 1, Buffer.alloc(8))], ErrorCode.PROTOCOL_ERROR],
  ['GOAWAY on a stream', [...hello, raw(7, 0, 1, Buffer.alloc(8))], ErrorCode.PROTOCOL_ERROR],
  ['DATA on no stream', [...hello, raw(0, 0, 0, Buffer.alloc(1))], ErrorCode.PROTOCOL_ERROR],
  ['a head on no stream', [...hello, open(0)], ErrorCode.PROTOCOL_ERROR],
  ['PRIORITY of four bytes', [...hello, raw(2, 0, 1, Buffer.alloc(4))], ErrorCode.FRAME_SIZE_ERROR],
  ['RST_STREAM of five bytes', [...hello, open(1), raw(3, 0, 1, Buffer.alloc(5))], ErrorCode.FRAME_SIZE_ERROR],
  ['GOAWAY of seven bytes', [...hello, raw(7, 0, 0, Buffer.alloc(7))], ErrorCode.FRAME_SIZE_ERROR],
  ['a request on a stream that has ended', [...hello, open(1), reset(1), open(1)], ErrorCode.STREAM_CLOSED],
  ['a request on a stream that it passed over', [...hello, open(5), open(3)], ErrorCode.PROTOCOL_ERROR],
  [
    "a table's size behind a field",
    [...hello, raw(1, 4, 1, Buffer.concat([HEAD, Buffer.of(0x20)]))],
    ErrorCode.COMPRESSION_ERROR,
  ],
  ...floods(),
];

function reset(stream: number): Buffer {
  return rstStreamFrame(stream, ErrorCode.CANCEL);
}

/** Frames that are well-formed, and carry nothing: more than a connection takes at once. */
function floods(): [what: string, frames: Buffer[], code: number][] {
  const many = (frame: Buffer, count = 20_000) => [...hello, open(1), ...Array<Buffer>(count).fill(frame)];
  const code = ErrorCode.ENHANCE_YOUR_CALM;
  return [
    ['20,000 PINGs', many(raw(6, 0, 0, Buffer.alloc(8))), code],
    ['20,000 answers to PINGs', many(raw(6, 1, 0, Buffer.alloc(8))), code],
    ['100 SETTINGS', many(settingsFrame({ initialWindowSize: 1 }), 100), code],
    ['100 GOAWAYs', many(goawayFrame(0), 100), code],
    ['20,000 PRIORITYs', many(raw(2, 0, 1, Buffer.alloc(5))), code],
    ['20,000 empty DATA', many(raw(0, 0, 1, NOTHING)), code],
    ['20,000 updates of a window', many(windowUpdateFrame(0, 1)), code],
    [
      '20,000 marks on a stream that is over',
      [...hello, open(1), rstStreamFrame(1, 0), ...Array(20_000).fill(mark(1))],
      code,
    ],
    ['20,000 frames of an unknown type', many(raw(0xaf, 0, 0, NOTHING)), code],
    [
      '20,000 requests that it takes back',
      [...hello, ...Array.from({ length: 20_000 }, (_, n) => Buffer.concat([open(2 * n + 1), reset(2 * n + 1)]))],
      code,
    ],
  ];
}

function endless(): Buffer[] {
  const field = encodeHead({ 'x-long': 'x'.repeat(8000) });
  return [...hello, raw(1, 0, 1, field), ...Array(7).fill(raw(9, 0, 1, field))];
}

for (const [what, frames, code] of attacks) {
  test(`a peer that sends ${what} is told so, and its connection ends`, async () => {
    assert.equal((await toldBy(CONFIG, ...frames)).code, code);
  });
}

for (const when of ['on a stream that is over', 'after a GOAWAY']) {
  test(`heads that are too long count ${when}, too`, async () => {
    const [client, socket] = await socketPair();
    const server = new Http2Link({ role: 'server', socket, config: { ...CONFIG, resets: 20 } });
    server.on('stream', (stream) => stream.on('error', () => {}));
    const closed = once(server, 'close');
    client.resume().write(Buffer.concat([...hello, open(1), open(3), reset(3)]));
    while (server.open !== 1) await new Promise(setImmediate);
    const leaves = when === 'after a GOAWAY';
    if (leaves) server.close();
    client.write(Buffer.concat(Array.from({ length: 21 }, (_, n) => raw(1, 4, leaves ? 5 + 2 * n : 3, LONG))));
    const [reason] = await closed;
    assert.match((reason as Error).message, /more than 20 streams were reset/);
  });
}

test('a peer that stops in the middle of a head is told so, and its connection ends', async () => {
  const begun = [...hello, raw(1, 0, 1, HEAD), raw(9, 0, 1, HEAD).subarray(0, 10)];
  assert.equal((await toldBy({ ...CONFIG, headMs: 1 }, ...begun)).code, ErrorCode.ENHANCE_YOUR_CALM);
});

test('a head that finds no room beside those of others may be sent again', async () => {
  const others = new HeadReader({ ...WIRE, headBytes: WIRE.unfinishedHeadBytes }, () => {});
  others.headers(1, 0, HEAD);
  others.continuation(0, Buffer.alloc(WIRE.unfinishedHeadBytes - 512));
  const frames = [raw(1, 0, 3, HEAD.subarray(0, 1)), raw(9, 0, 3, Buffer.alloc(1024))];
  assert.deepEqual(await toldBy(CONFIG, ...hello, open(1), ...frames), {
    lastStream: 1,
    code: ErrorCode.ENHANCE_YOUR_CALM,
  });
  others.drop();
});

const POST = { ':method': 'POST', ':scheme': 'http', ':path': '/' };

function head(stream: number, fields: Readonly<Record<string, string>>, ends = false): Buffer {
  return Buffer.concat(headersFrames(stream, encodeHead(fields), ends, 16_384));
}

function data(text: string, ends: boolean): Buffer {
  return raw(0, ends ? 1 : 0, 1, Buffer.from(text));
}

const faults: [what: string, frames: Buffer[], code: number][] = [
  ['a window of a stream beyond 2^31 - 1', [open(1), windowUpdateFrame(1, 2 ** 31 - 1)], ErrorCode.FLOW_CONTROL_ERROR],
  [
    'more than its window',
    [open(1), ...Array(3).fill(raw(0, 0, 1, Buffer.alloc(32 * 1024)))],
    ErrorCode.FLOW_CONTROL_ERROR,
  ],
  ['an update with an increment of 0', [open(1), windowUpdateFrame(1, 0)], ErrorCode.PROTOCOL_ERROR],
  ['DATA after its end', [open(1), dataHead(1, 0, true), data('x', false)], ErrorCode.STREAM_CLOSED],
  ['trailers after its end', [open(1), dataHead(1, 0, true), head(1, { a: 'b' }, true)], ErrorCode.STREAM_CLOSED],
  ['trailers that do not end it', [open(1), head(1, { a: 'b' })], ErrorCode.PROTOCOL_ERROR],
  ['a second request', [open(1), head(1, POST, true)], ErrorCode.PROTOCOL_ERROR],
  ['a request without a path', [head(1, { ':method': 'GET', ':scheme': 'http' })], ErrorCode.PROTOCOL_ERROR],
  ['a CONNECT with a path', [head(1, { ...POST, ':method': 'CONNECT', ':authority': 'h' })], ErrorCode.PROTOCOL_ERROR],
  ['a CONNECT to nowhere', [head(1, { ':method': 'CONNECT' })], ErrorCode.PROTOCOL_ERROR],
  ["a request with an answer's field", [head(1, { ...POST, ':status': '200' })], ErrorCode.PROTOCOL_ERROR],
  ['a field of HTTP/2 behind others', [head(1, { a: 'b', ...POST })], ErrorCode.PROTOCOL_ERROR],
  ['a name with capitals', [head(1, { ...POST, Host: 'x' })], ErrorCode.PROTOCOL_ERROR],
  ['a field of HTTP/1.1', [head(1, { ...POST, connection: 'close' })], ErrorCode.PROTOCOL_ERROR],
  [
    'more than its content-length',
    [head(1, { ...POST, 'content-length': '1' }), data('xy', false)],
    ErrorCode.PROTOCOL_ERROR,
  ],
  [
    'less than its content-length',
    [head(1, { ...POST, 'content-length': '3' }), data('xy', true)],
    ErrorCode.PROTOCOL_ERROR,
  ],
  ['nothing of its content-length', [head(1, { ...POST, 'content-length': '3' }, true)], ErrorCode.PROTOCOL_ERROR],
  ['a flood of marks', [head(1, POST), ...Array(1000).fill(mark(1))], ErrorCode.ENHANCE_YOUR_CALM],
  ['a head longer than it may be', [raw(1, 4, 1, LONG)], ErrorCode.NO_ERROR],
  ['trailers longer than they may be', [open(1), raw(1, 5, 1, LONG)], ErrorCode.ENHANCE_YOUR_CALM],
  ['a content-length that is none', [head(1, { ...POST, 'content-length': 'x' })], ErrorCode.PROTOCOL_ERROR],
];

for (const [what, frames, code] of faults) {
  test(`${what} resets a stream, and the others go on`, async () => {
    const [client, socket] = await socketPair();
    const server = new Http2Link({ role: 'server', socket, config: CONFIG });
    const opened: number[] = [];
    server.on('stream', (stream) => {
      opened.push(stream.id);
      stream.on('error', () => {});
    });
    const resets: [id: number, code: number][] = [];
    const reader = new FrameReader(
      {
        frame: (type, _flags, id, payload) =>
          type === FrameType.RST_STREAM && resets.push([id, payload.readUInt32BE()]),
        data() {},
      },
      16_384,
    );
    client.on('data', (chunk: Buffer) => reader.read(chunk));
    client.write(Buffer.concat([...hello, ...frames, open(3)]));
    while (!opened.includes(3) || resets.length === 0) await new Promise(setImmediate);
    assert.deepEqual(resets, [[1, code]]);
    server.destroy();
  });
}

test('more streams than allowed are refused, and what is unknown is passed over', async () => {
  const [client, socket] = await socketPair();
  const server = new Http2Link({ role: 'server', socket, config: { ...CONFIG, streams: 2 } });
  let opened = 0;
  server.on('stream', (stream) => {
    opened++;
    stream.on('error', () => {});
  });
  const unknown = raw(0xaf, 0xff, 1, Buffer.from('who knows'));
  const priority = raw(2, 0, 1, Buffer.alloc(5));
  const padded = raw(0, 8, 1, Buffer.from([3, 120, 0, 0, 0]));
  client.write(Buffer.concat([...hello, open(1), unknown, priority, padded, open(3), open(5), goawayFrame(0)]));
  client.resume();
  await once(server, 'goaway');
  assert.deepEqual([opened, server.open], [2, 2]);
  client.destroy();
  await once(server, 'close');
});

test('a peer that asks for answers and does not read them is left', async () => {
  const [client, socket] = await socketPair();
  const server = new Http2Link({ role: 'server', socket, config: CONFIG });
  server.on('stream', (stream) => {
    stream.on('error', () => {}).respond({ ':status': 200, long: 'x'.repeat(16_000) }, { endStream: true });
  });
  const closed = once(server, 'close');
  client.pause();
  client.write(Buffer.concat(hello));
  let next = 1;
  const more = () => {
    if (!client.writable) return;
    const requests = Array.from({ length: 100 }, (_, n) => head(next + 2 * n, POST, true));
    next += 200;
    client.write(Buffer.concat(requests), more);
  };
  more();
  const [reason] = await closed;
  assert.equal((reason as Error).message, 'the other side sends requests faster than it reads answers');
});

test('bytes that come one by one are read as well', async () => {
  const [client, socket] = await socketPair();
  const server = new Http2Link({ role: 'server', socket, config: CONFIG });
  const text: string[] = [];
  server.on('stream', (stream) => stream.on('data', (chunk) => text.push(String(chunk))).on('error', () => {}));
  client.resume();
  for (const byte of Buffer.concat([...hello, open(1), raw(0, 1, 1, Buffer.from('hello'))]))
    socket.emit('data', Buffer.from([byte]));
  while (text.join('') !== 'hello') await new Promise(setImmediate);
  server.destroy();
});

/** Counts what comes in each tick of the event loop, until it is stopped. */
function ticks() {
  const inTick = [0];
  const next = () => {
    inTick.push(0);
    tick = setImmediate(next);
  };
  let tick = setImmediate(next);
  const came = () => {
    inTick[inTick.length - 1] = (inTick.at(-1) ?? 0) + 1;
  };
  return { inTick, came, stop: () => clearImmediate(tick) };
}

test('a burst of requests that are reset at once leaves ticks of the event loop to other connections', async () => {
  const count = 5000;
  const [client, socket] = await socketPair();
  const burst = Array.from({ length: count }, (_, i) => [open(2 * i + 1), rstStreamFrame(2 * i + 1, ErrorCode.CANCEL)]);
  // All of it waits in the kernel before the first byte is read.
  await new Promise((sent) => client.write(Buffer.concat([PREFACE, settingsFrame({}), ...burst.flat()]), sent));
  const server = new Http2Link({
    role: 'server',
    socket,
    config: { ...CONFIG, streams: 2 * count },
  });
  const { inTick, came, stop } = ticks();
  const done = new Promise<void>((resolve) => {
    let opened = 0;
    server.on('stream', (stream) => {
      stream.on('error', () => {});
      came();
      if (++opened === count) resolve();
    });
  });
  await done;
  stop();
  const most = Math.max(...inTick);
  assert.ok(most <= 33, `${most} streams in one tick`);
});

test('a burst of frames with a byte each leaves ticks of the event loop to other connections', async () => {
  const count = 20_000;
  const [client, socket] = await socketPair();
  const one = raw(FrameType.DATA, 0, 1, Buffer.of(1));
  // All of it waits in the kernel before the first byte is read.
  const sent = new Promise((sent) => client.write(Buffer.concat([...hello, open(1), ...Array(count).fill(one)]), sent));
  await sent;
  const server = new Http2Link({ role: 'server', socket, config: CONFIG });
  const { inTick, came, stop } = ticks();
  const done = new Promise<void>((resolve) => {
    let frames = 0;
    const onData = () => {
      came();
      if (++frames === count) resolve();
    };
    server.on('begun', (stream) => {
      stream.handler = { onHeaders() {}, onData, onWritable() {}, onEnd() {}, onClose() {} };
    });
  });
  await done;
  stop();
  server.destroy(new Error('test over'));
  const most = Math.max(...inTick);
  assert.ok(most <= 1100, `${most} frames in one tick`);
});

test('dear heads of many connections of one tenant leave ticks of the event loop to others', async () => {
  const [connections, heads] = [40, 10];
  const { inTick, came, stop } = ticks();
  const done = Promise.withResolvers<void>();
  let opened = 0;
  const readers = new Readers();
  const dear = encodeHead({ ':method': 'CONNECT', ':authority': 'h:1', dear: 'x'.repeat(40_000) });
  const frames = Array.from({ length: heads }, (_, n) => Buffer.concat(headersFrames(2 * n + 1, dear, false, 65_536)));
  const all = Buffer.concat([...hello, ...frames]);
  const pairs = await Promise.all(Array.from({ length: connections }, () => socketPair()));
  for (const [client, socket] of pairs) {
    client.write(all);
    const server = new Http2Link({ role: 'server', socket, readers });
    server.on('stream', (stream) => {
      stream.on('error', () => {});
      came();
      if (++opened === connections * heads) done.resolve();
    });
  }
  await done.promise;
  stop();
  for (const [client] of pairs) client.destroy();
  // Each connection reads one before it rests for the first time.
  const long = inTick.filter((read) => read > 12).length;
  assert.ok(long <= 3, `${long} ticks with many heads: ${inTick.join(' ')}`);
});

test('what came before a FIN is read, however many ticks it takes', async () => {
  const count = 200;
  const [client, socket] = await socketPair();
  client.resume();
  const heads = Array.from({ length: count }, (_, i) => open(2 * i + 1));
  await new Promise((sent) => client.end(Buffer.concat([PREFACE, settingsFrame({}), ...heads]), () => sent(undefined)));
  const server = new Http2Link({ role: 'server', socket, config: CONFIG });
  let opened = 0;
  server.on('stream', (stream) => {
    stream.on('error', () => {});
    opened++;
  });
  await once(server, 'close');
  assert.equal(opened, count);
});
