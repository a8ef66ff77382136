import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { destroyOnceRead } from './destroy-once-read.ts';

const lost = new Error('lost');

/** Returns a stream with two unread pieces, what its reader gets, and how it ends. */
function unread() {
  const stream = new PassThrough();
  stream.write('one');
  stream.write('two');
  const read: string[] = [];
  const ended = new Promise<Error | undefined>((resolve) => {
    stream.once('error', resolve).once('end', () => resolve(undefined));
  });
  return { stream, read, ended };
}

test('a stream that nobody has begun to read is destroyed once its reader has everything', async () => {
  const { stream, read, ended } = unread();
  destroyOnceRead(stream, lost);
  await new Promise(setImmediate);
  assert.equal(stream.destroyed, false);
  stream.on('data', (piece) => read.push(String(piece)));
  assert.equal(await ended, lost);
  assert.deepEqual(read, ['one', 'two']);
});

test('a paused stream is destroyed once its reader has everything, however slowly it reads', async () => {
  const { stream, read, ended } = unread();
  stream.on('data', (piece) => {
    read.push(String(piece));
    stream.pause();
    setImmediate(() => stream.resume());
  });
  stream.pause();
  destroyOnceRead(stream, lost);
  stream.resume();
  assert.equal(await ended, lost);
  assert.deepEqual(read, ['one', 'two']);
});

test('a stream without unread bytes is destroyed at once', async () => {
  const stream = new PassThrough();
  destroyOnceRead(stream);
  assert.equal(stream.destroyed, true);
});
