import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConnectionError, ErrorCode, Flag } from '../codes.ts';
import {
  dataHead,
  goawayFrame,
  headersFrames,
  pingFrame,
  rstStreamFrame,
  settingsAck,
  windowUpdateFrame,
} from '../frames.ts';
import { FrameReader } from './frame-reader.ts';

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
  settingsAck(),
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
