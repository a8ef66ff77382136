import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  CODE,
  ConnectionError,
  FLAG,
  type FrameHead,
  FrameReader,
  frame,
  frameHead,
  numbersFrame,
  TYPE,
} from './frames.ts';

/** What a reader hands on, with the pieces of DATA put together. */
function read(chunks: Iterable<Buffer>): string[] {
  const said: string[] = [];
  let data = '';
  const show = ({ type, flags, stream, length }: FrameHead) => `${type}/${flags}/${stream}/${length}`;
  const reader = new FrameReader({
    frame: (head, payload) => void said.push(`${show(head)} ${payload.toString('hex')}`),
    dataBegins: (head) => void said.push(`begins ${show(head)}`),
    data: (_head, piece) => {
      assert.ok(piece.length > 0, 'an empty piece');
      data += piece.toString('hex');
    },
    dataEnds: (head) => {
      said.push(`ends ${show(head)} ${data}`);
      data = '';
    },
  });
  for (const chunk of chunks) reader.read(chunk);
  return said;
}

const FRAMES = Buffer.concat([
  frame(TYPE.SETTINGS, 0, 0, Buffer.alloc(0)),
  frame(TYPE.HEADERS, FLAG.END_HEADERS, 1, Buffer.from('head')),
  frame(TYPE.DATA, 0, 1, Buffer.from('some data')),
  frame(TYPE.DATA, FLAG.PADDED, 1, Buffer.from('\x02data..')),
  frame(TYPE.DATA, FLAG.END_STREAM, 1, Buffer.alloc(0)),
  numbersFrame(TYPE.WINDOW_UPDATE, 0, 65_536),
]);
const WORDS = [
  '4/0/0/0 ',
  '1/4/1/4 68656164',
  'begins 0/0/1/9',
  'ends 0/0/1/9 736f6d652064617461',
  '0/8/1/7 02646174612e2e',
  'begins 0/1/1/0',
  'ends 0/1/1/0 ',
  '8/0/0/4 00010000',
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
  const chunk = frame(TYPE.DATA, 0, 1, Buffer.from('view'));
  const pieces: Buffer[] = [];
  const nothing = () => {};
  const sink = { frame: nothing, dataBegins: nothing, dataEnds: nothing };
  new FrameReader({ ...sink, data: (_head, piece) => void pieces.push(piece) }).read(chunk);
  assert.equal(pieces[0]?.buffer, chunk.buffer);
});

test('a frame that is too long is refused by its head alone', () => {
  assert.throws(
    () => read([frameHead(TYPE.DATA, 0, 1, 16_385)]),
    (error) => error instanceof ConnectionError && error.code === CODE.FRAME_SIZE_ERROR,
  );
});

test('the reserved bit of a stream is passed over', () => {
  const bytes = frame(TYPE.PING, 0, 0x7fffffff, Buffer.alloc(8));
  bytes[5] = 0xff;
  assert.match(read([bytes])[0] ?? '', /^6\/0\/2147483647\/8/);
});
