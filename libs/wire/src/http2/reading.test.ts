import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WIRE } from '../defaults.ts';
import {
  ConnectionError,
  dataHead,
  ErrorCode,
  Flag,
  FrameType,
  goawayFrame,
  headersFrames,
  PREFACE,
  pingFrame,
  rstStreamFrame,
  SETTINGS_ACK,
  settingsFrame,
  windowUpdateFrame,
} from './frames.ts';
import { encodeHead } from './heads.ts';
import { FrameReader } from './reading.ts';
import { HEAD, raw, streamsOf } from './testing.ts';

const HELLO = settingsFrame({});
const OPAQUE = Buffer.from('12345678');

const open = (id: number) => Buffer.concat(headersFrames(id, encodeHead(HEAD), false, 16_384));
const broken = (code: number) => (error: unknown) => error instanceof ConnectionError && error.code === code;

for (const size of [1, 5, PREFACE.length, PREFACE.length + 3]) {
  test(`a server reads the preface in pieces of ${size}, and what follows`, () => {
    const { reading, opened } = streamsOf('server');
    const words = Buffer.concat([PREFACE, HELLO, open(1)]);
    for (let at = 0; at < words.length; at += size) reading.read(words.subarray(at, at + size));
    assert.deepEqual(opened, [1]);
  });
}

test('a server refuses what is no preface from the first byte that differs', () => {
  const { reading } = streamsOf('server');
  reading.read(Buffer.from('PRI * HTTP/'));
  assert.throws(() => reading.read(Buffer.from('1')), broken(ErrorCode.PROTOCOL_ERROR));
});

test('SETTINGS are adopted and passed on, an acknowledgement is not', () => {
  const { reading, output, counts } = streamsOf('client');
  reading.read(settingsFrame({ maxFrameSize: 20_000 }));
  reading.read(SETTINGS_ACK);
  assert.deepEqual([counts.settings, output.maxFrame], [1, 20_000]);
});

/** A server that reads a stream. @param windowBytes of its SETTINGS */
function sending(windowBytes: number) {
  const { reading, ends } = streamsOf('server', { windowBytes });
  reading.read(Buffer.concat([PREFACE, HELLO, open(1)]));
  const send = (bytes: number, end = false) =>
    reading.read(Buffer.concat([dataHead(1, bytes, end), Buffer.alloc(bytes)]));
  return { reading, ends, send };
}

test('until our SETTINGS are acknowledged, a stream has the window that it begins with (RFC 9113 section 6.9.2)', () => {
  const { send, ends } = sending(4096);
  send(16_384);
  send(32_768);
  send(16_383);
  assert.deepEqual(ends, []);
  send(1);
  assert.deepEqual(ends, [[1, ErrorCode.FLOW_CONTROL_ERROR]]);
});

test('once they are, it has ours, and what came before counts', () => {
  const { reading, send, ends } = sending(4096);
  send(4000);
  reading.read(SETTINGS_ACK);
  send(96);
  assert.deepEqual(ends, []);
  send(1);
  assert.deepEqual(ends, [[1, ErrorCode.FLOW_CONTROL_ERROR]]);
});

test('an answered PING says that our SETTINGS were read, even if they are never acknowledged', () => {
  const { reading, send, ends } = sending(4096);
  send(4096);
  reading.read(pingFrame(OPAQUE, true));
  assert.deepEqual(ends, []);
  send(1);
  assert.deepEqual(ends, [[1, ErrorCode.FLOW_CONTROL_ERROR]]);
});

test('a stream that has sent more than our window ends with an empty frame', () => {
  const { reading, send, ends } = sending(4096);
  send(10_000);
  reading.read(SETTINGS_ACK);
  send(0, true);
  assert.deepEqual(ends, [[1, 'remote']]);
});

test('a PING is told from the answer to one', () => {
  const { reading, pings, counts } = streamsOf('client');
  reading.read(HELLO);
  reading.read(pingFrame(OPAQUE, false));
  assert.deepEqual([pings, counts.pongs], [[OPAQUE], 0]);
  reading.read(pingFrame(OPAQUE, true));
  assert.deepEqual([pings.length, counts.pongs], [1, 1]);
});

test('a GOAWAY in good order refuses what the other side has not seen, and no more', () => {
  const { reading, open, goaways } = streamsOf('client');
  const [seen, unseen] = [open(1), open(3)];
  reading.read(HELLO);
  reading.read(goawayFrame(seen.id));
  assert.deepEqual(goaways, [undefined]);
  assert.deepEqual([seen.closed, unseen.code], [false, ErrorCode.REFUSED_STREAM]);
});

test('a GOAWAY with an error says which, and why', () => {
  const { reading, goaways } = streamsOf('client');
  reading.read(HELLO);
  reading.read(goawayFrame(0, ErrorCode.ENHANCE_YOUR_CALM, 'too many pings'));
  reading.read(goawayFrame(0, ErrorCode.PROTOCOL_ERROR, `\u001b]0;${'x'.repeat(5000)}`));
  const said = 'the other side closed the connection:';
  const shown = `\\u{1b}]0;${'x'.repeat(WIRE.reasonChars - 4)}`;
  assert.deepEqual(goaways, [`${said} ENHANCE_YOUR_CALM too many pings`, `${said} PROTOCOL_ERROR ${shown}`]);
});

const refused: [what: string, frame: Buffer, code: number][] = [
  ['PUSH_PROMISE', raw(FrameType.PUSH_PROMISE, 4, 1, encodeHead(HEAD)), ErrorCode.PROTOCOL_ERROR],
  ['a stream that the server opens', open(2), ErrorCode.PROTOCOL_ERROR],
  ['a GOAWAY of seven bytes', raw(FrameType.GOAWAY, 0, 0, Buffer.alloc(7)), ErrorCode.FRAME_SIZE_ERROR],
  ['RST_STREAM of three bytes', raw(FrameType.RST_STREAM, 0, 1, Buffer.alloc(3)), ErrorCode.FRAME_SIZE_ERROR],
];

for (const [what, frame, code] of refused) {
  test(`a client refuses ${what}`, () => {
    const { reading, open } = streamsOf('client');
    open(1);
    reading.read(HELLO);
    assert.throws(() => reading.read(frame), broken(code));
  });
}

test('frames of which nobody knows anything are passed over', async () => {
  const { reading, opened, sent, goaways } = streamsOf('server');
  const unknown = [raw(0xaf, 0xff, 1, Buffer.from('who knows')), raw(FrameType.PRIORITY, 0, 7, Buffer.alloc(5))];
  reading.read(Buffer.concat([PREFACE, HELLO, ...unknown, open(1)]));
  assert.deepEqual([opened, await sent(), goaways], [[1], [], []]);
});

test('nothing is read any more once it is stopped, also of what came with it', () => {
  const { reading, opened, goaways, sink } = streamsOf('server');
  sink.onGoaway = () => {
    goaways.push('stopped');
    reading.stop();
  };
  reading.read(Buffer.concat([PREFACE, HELLO, goawayFrame(0), open(1)]));
  reading.read(open(3));
  assert.deepEqual([goaways.length, opened], [1, []]);
});

const MOST = 16_384;

/** What a reader hands on, with the parts of DATA put together. */
function read(chunks: Iterable<Buffer>): string[] {
  const said: string[] = [];
  let data = '';
  const reader = new FrameReader(
    {
      frame: (type, flags, stream, payload) => void said.push(`${type}/${flags}/${stream} ${payload.toString('hex')}`),
      data: (stream, bytes, flags, last, padding) => {
        data += bytes.toString('latin1');
        if (!last) return;
        said.push(`data/${flags}/${stream} ${data} +${padding}`);
        data = '';
      },
    },
    MOST,
  );
  for (const chunk of chunks) reader.read(chunk);
  return said;
}

function padded(stream: number, payload: string): Buffer {
  const head = dataHead(stream, payload.length, false);
  head[4] = Flag.PADDED;
  return Buffer.concat([head, Buffer.from(payload)]);
}

const FRAMES = Buffer.concat([
  SETTINGS_ACK,
  ...headersFrames(1, Buffer.from('head'), false, MOST),
  dataHead(1, 9, false),
  Buffer.from('some data'),
  padded(1, '\x02data..'),
  dataHead(1, 0, true),
  rstStreamFrame(3, 8),
  windowUpdateFrame(0, 65_536),
  goawayFrame(1),
]);
const WORDS = [
  '4/1/0 ',
  '1/4/1 68656164',
  'data/0/1 some data +0',
  'data/8/1 data +3',
  'data/1/1  +0',
  '3/0/3 00000008',
  '8/0/0 00010000',
  '7/0/0 0000000100000000',
];

test('frames are the same wherever the socket cuts them', () => {
  assert.deepEqual(read([FRAMES]), WORDS);
  for (let first = 0; first <= FRAMES.length; first++) {
    assert.deepEqual(read([FRAMES.subarray(0, first), FRAMES.subarray(first)]), WORDS, `cut at ${first}`);
  }
  for (const size of [1, 2, 3, 5, 8, 13]) {
    const chunks = [];
    for (let at = 0; at < FRAMES.length; at += size) chunks.push(FRAMES.subarray(at, at + size));
    assert.deepEqual(read(chunks), WORDS, `cut every ${size}`);
  }
});

test('data is not copied', () => {
  const chunk = Buffer.concat([dataHead(1, 4, false), Buffer.from('view')]);
  const parts: Buffer[] = [];
  new FrameReader({ frame() {}, data: (_stream, bytes) => void parts.push(bytes) }, MOST).read(chunk);
  assert.equal(parts[0]?.buffer, chunk.buffer);
});

test('a frame that is too long is refused by its head alone', () => {
  assert.throws(
    () => read([dataHead(1, MOST + 1, false)]),
    (error) => error instanceof ConnectionError && error.code === ErrorCode.FRAME_SIZE_ERROR,
  );
});

test('padding longer than its frame is refused', () => {
  assert.throws(() => read([padded(1, '\x07data..')]), ConnectionError);
});

test('a head longer than a frame goes in several', () => {
  const frames = headersFrames(1, Buffer.from('abcdefgh'), true, 3);
  assert.deepEqual(read(frames), ['1/1/1 616263', '9/0/1 646566', '9/4/1 6768']);
});

test('the reserved bit of a stream is passed over', () => {
  const bytes = pingFrame(Buffer.alloc(8), false);
  bytes[5] = 0x80;
  assert.deepEqual(read([bytes]), ['6/0/0 0000000000000000']);
});
