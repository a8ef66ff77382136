import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WIRE } from '../defaults.ts';
import { MessageReader, PREFIX, writePrefix } from './messages.ts';
import { readTimeout, StatusError, type StatusName } from './status.ts';

const MOST = 100;

function message(text: string, flag = 0, length = text.length): Buffer {
  const bytes = Buffer.alloc(PREFIX + text.length, text);
  bytes.write(text, PREFIX);
  writePrefix(bytes, length);
  bytes[0] = flag;
  return bytes;
}

function read(pieces: Iterable<Buffer>): string[] {
  const reader = new MessageReader({ ...WIRE, messageBytes: MOST });
  const messages: string[] = [];
  for (const piece of pieces) {
    reader.add(piece);
    for (let next = reader.next(); next; next = reader.next()) messages.push(String(next));
  }
  assert.ok(reader.empty);
  return messages;
}

test('messages are the same wherever they are split and merged', () => {
  const messages = ['one', '', 'x'.repeat(MOST), 'four'];
  const bytes = Buffer.concat(messages.map((text) => message(text)));
  for (let first = 0; first <= bytes.length; first++) {
    assert.deepEqual(read([bytes.subarray(0, first), bytes.subarray(first)]), messages, `split at ${first}`);
  }
  for (const size of [1, 2, 3, 5, 8, 13]) {
    const pieces = [];
    for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.subarray(at, at + size));
    assert.deepEqual(read(pieces), messages, `split every ${size}`);
  }
});

test('pieces of all sizes, some put together and some not, read while others come, keep their order', () => {
  const most = 40_000;
  let state = 1;
  const upTo = (limit: number) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return state % limit;
  };
  const messages = Array.from({ length: 60 }, (_, i) => String.fromCharCode(97 + (i % 26)).repeat(upTo(most)));
  const bytes = Buffer.concat(messages.map((text) => message(text)));
  const reader = new MessageReader({ ...WIRE, messageBytes: most });
  const got: string[] = [];
  for (let at = 0; at < bytes.length; ) {
    const size = 1 + upTo(upTo(2) === 0 ? 100 : 8_000);
    reader.add(bytes.subarray(at, at + size));
    at += size;
    // A paused call takes nothing for a while.
    const paused = upTo(4) !== 0;
    for (let next = paused ? undefined : reader.next(); next; next = reader.next()) got.push(String(next));
    reader.keep();
  }
  for (let next = reader.next(); next; next = reader.next()) got.push(String(next));
  assert.deepEqual(got, messages);
  assert.ok(reader.empty);
});

test('a message in one piece is a view of it', () => {
  const reader = new MessageReader({ ...WIRE, messageBytes: MOST });
  const piece = message('view');
  reader.add(piece);
  assert.equal(reader.next()?.buffer, piece.buffer);
});

test('a reader that lacks the end of a message is not empty', () => {
  for (const length of [1, PREFIX, PREFIX + 1]) {
    const reader = new MessageReader({ ...WIRE, messageBytes: MOST });
    reader.add(message('two').subarray(0, length));
    assert.equal(reader.next(), undefined);
    assert.equal(reader.empty, false);
  }
});

const REFUSED: readonly [what: string, bytes: Buffer, status: StatusName, text: RegExp][] = [
  ['a compressed message', message('x', 1), 'Internal', /compressed flag set with identity or empty encoding/],
  ['a flag that is none', message('x', 2), 'Internal', /unexpected payload format 2/],
  ['a message that is too long', message('x', 0, MOST + 1), 'ResourceExhausted', /larger than max \(101 vs. 100\)/],
  ['a message of 4 GiB', message('x', 0, 2 ** 32 - 1), 'ResourceExhausted', /larger than max/],
];

for (const [what, bytes, status, text] of REFUSED) {
  test(`${what} is refused by its prefix`, () => {
    const reader = new MessageReader({ ...WIRE, messageBytes: MOST });
    reader.add(bytes.subarray(0, PREFIX));
    assert.throws(
      () => reader.next(),
      (error) => error instanceof StatusError && error.code === status && text.test(error.message),
    );
  });
}

test('a small piece that is kept does not keep the block that it came in', () => {
  const reader = new MessageReader({ ...WIRE, messageBytes: MOST });
  const blocks = Array.from({ length: 8 }, () => Buffer.alloc(64 * 1024));
  for (const block of blocks) {
    message('kept').copy(block, 100);
    reader.add(block.subarray(100, 100 + PREFIX + 4));
    reader.keep();
  }
  const messages: Buffer[] = [];
  for (let next = reader.next(); next; next = reader.next()) messages.push(next);
  assert.deepEqual(messages.map(String), Array(8).fill('kept'));
  const kept = [...new Set(messages.map(({ buffer }) => buffer))].reduce((sum, { byteLength }) => sum + byteLength, 0);
  // The first block may lie in Node's pool, and so may what was put together of two.
  assert.ok(kept <= 2 * Buffer.poolSize, `8 messages of 4 bytes keep ${kept}`);
});

test('a piece of some size is kept without a much larger block', () => {
  const reader = new MessageReader({ ...WIRE, messageBytes: 20_000 });
  const block = Buffer.alloc(64 * 1024);
  writePrefix(block, 10_000 - PREFIX);
  reader.add(block.subarray(0, 10_000));
  reader.keep();
  assert.equal(reader.next()?.buffer.byteLength, 10_000);
});

const TIMEOUTS: readonly [text: string | undefined, ms: number | undefined][] = [
  ['1H', 3_600_000],
  ['2M', 120_000],
  ['30S', 30_000],
  ['99999999m', 99_999_999],
  ['1500u', 1.5],
  ['0n', 0],
  [undefined, undefined],
  // Longer than a timer: no timeout at all.
  ['99999999H', undefined],
  ['', Number.NaN],
  ['10', Number.NaN],
  ['S', Number.NaN],
  ['1s', Number.NaN],
  ['-1S', Number.NaN],
  ['1.5S', Number.NaN],
  ['123456789S', Number.NaN],
];

for (const [text, ms] of TIMEOUTS) {
  test(`grpc-timeout ${JSON.stringify(text)} is ${ms} ms`, () => assert.equal(readTimeout(text), ms));
}
