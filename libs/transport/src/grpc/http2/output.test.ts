import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { Writable } from 'node:stream';
import { afterEach, mock, test } from 'node:test';
import { Output } from './output.ts';
import type { ServerStream } from './stream.ts';

afterEach(() => mock.timers.reset());

/** A socket that takes what is written when the test says so. */
function output() {
  const writes: string[] = [];
  let take = () => {};
  const socket = new Writable({
    highWaterMark: 64 * 1024,
    write(chunk: Buffer, _encoding, done) {
      writes.push(chunk.length > 20 ? `${chunk.length} bytes` : String(chunk));
      take = done;
    },
    writev(chunks, done) {
      writes.push(`${chunks.length} parts`);
      take = done;
    },
  });
  return { output: new Output(socket as Socket, assert.ifError), writes, take: () => take() };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

test('what is added in one turn leaves in one write', async () => {
  const { output: own, writes, take } = output();
  own.add(Buffer.from('a'));
  own.add(Buffer.from('b'));
  assert.deepEqual(writes, []);
  await turn();
  assert.deepEqual(writes, ['ab']);
  take();
  own.add(Buffer.alloc(8_192));
  own.add(Buffer.from('c'));
  await turn();
  assert.deepEqual(writes, ['ab', '2 parts']);
});

test('what is patient waits for bulk, and goes alone when none comes', async () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  const { output: own, writes, take } = output();
  own.addPatiently(Buffer.from('ping'));
  own.add(Buffer.from('short'));
  await turn();
  assert.deepEqual(writes, ['short']);
  take();
  own.add(Buffer.alloc(1_024));
  await turn();
  assert.deepEqual(writes, ['short', '1028 bytes']);
  take();
  own.addPatiently(Buffer.from('ping'));
  mock.timers.tick(100);
  await turn();
  assert.deepEqual(writes, ['short', '1028 bytes', 'ping']);
  take();
  own.addPatiently(Buffer.from('late'));
  own.stop();
  mock.timers.tick(100);
  await turn();
  assert.deepEqual(writes, ['short', '1028 bytes', 'ping']);
});

test('a flood of what is patient does not wait', async () => {
  const { output: own, writes } = output();
  own.addPatiently(Buffer.alloc(1_024));
  own.addPatiently(Buffer.from('one more'));
  await turn();
  assert.deepEqual(writes, ['1032 bytes']);
});

test('streams get room when the socket has taken what there was, and within the window, in turn', async () => {
  const { output: own, take } = output();
  const pumped: string[] = [];
  const stream = (name: string, bytes: number) =>
    ({
      pump() {
        pumped.push(name);
        own.add(Buffer.alloc(bytes), bytes);
      },
    }) as ServerStream;
  assert.equal(own.room, 65_535);
  own.widen(100_000);
  own.add(Buffer.alloc(65_536), 65_536);
  assert.equal(own.room, 0);
  own.wait(stream('first', 65_536));
  own.wait(stream('second', 1));
  await turn();
  assert.deepEqual(pumped, []);
  take();
  await turn();
  assert.deepEqual(pumped, ['first']);
  take();
  await turn();
  take();
  await turn();
  assert.deepEqual(pumped, ['first', 'second']);
  assert.equal(own.room, 65_535 + 100_000 - 2 * 65_536 - 1);
  assert.equal(own.widen(2 ** 31 - 1), false);
});
