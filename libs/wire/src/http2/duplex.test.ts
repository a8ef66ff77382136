import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { DuplexStream } from './duplex.ts';
import type { Http2Stream } from './stream.ts';

/** A Duplex, and what it asked of its stream. */
function recorded() {
  const asked = { pieces: [] as Buffer[], got: 0, ends: 0, turns: 0, closed: false };
  const stream: Partial<Http2Stream> = {
    write: (piece) => void asked.pieces.push(piece as Buffer),
    consume(bytes) {
      asked.got += bytes;
      return false;
    },
    end: () => void asked.ends++,
    awaitTurn: () => void asked.turns++,
    get closed() {
      return asked.closed;
    },
    localEnded: false,
  };
  const duplex = new DuplexStream(stream as Http2Stream);
  return { asked, duplex, lengths: () => asked.pieces.map(({ length }) => length) };
}

test('one write is under way at a time, and short pieces that waited for it leave as one', () => {
  const { asked, duplex, lengths } = recorded();
  for (const piece of ['first', 'a', 'b', 'c']) duplex.write(piece);
  assert.deepEqual(lengths(), [5]);
  duplex.onWritable();
  assert.deepEqual(lengths(), [5, 3]);
  assert.equal(String(asked.pieces[1]), 'abc');
});

test('long pieces that waited leave as they are, without a copy', () => {
  const { asked, duplex } = recorded();
  const long = [Buffer.alloc(4096), Buffer.alloc(4096)];
  duplex.write('first');
  for (const piece of long) duplex.write(piece);
  duplex.onWritable();
  assert.ok(asked.pieces[1]?.buffer === long[0]?.buffer && asked.pieces[2]?.buffer === long[1]?.buffer);
});

test('a write to a stream that is closed waits for nothing', async () => {
  const { asked, duplex, lengths } = recorded();
  asked.closed = true;
  await new Promise<void>((resolve) => void duplex.write('now', () => resolve()));
  assert.deepEqual(lengths(), [3]);
});

test('bytes count as read once the reader has them', () => {
  const { asked, duplex } = recorded();
  duplex.onData(Buffer.from('hello '));
  duplex.onData(Buffer.from('world'));
  assert.ok(asked.got < 11, 'nobody reads');
  let read = '';
  for (let chunk = duplex.read(); chunk !== null; chunk = duplex.read()) read += chunk;
  assert.equal(read, 'hello world');
  assert.equal(asked.got, 11);
});

test('a bulk writer is asked for more on its turn, and a writer of little at once', async () => {
  const { asked, duplex } = recorded();
  let drained = 0;
  duplex.write(Buffer.alloc(64 * 1024), () => drained++);
  duplex.onWritable();
  assert.deepEqual([asked.turns, drained], [1, 0]);
  duplex.writeMore();
  duplex.write('little', () => drained++);
  duplex.onWritable();
  assert.equal(asked.turns, 1);
  await new Promise(setImmediate);
  assert.equal(drained, 2);
});

test('a bulk writer that has ended waits for no turn', async () => {
  const { asked, duplex } = recorded();
  duplex.end(Buffer.alloc(64 * 1024));
  duplex.onWritable();
  await new Promise(setImmediate);
  assert.deepEqual([asked.turns, asked.ends, duplex.writableFinished], [0, 1, false]);
  duplex.onWritable();
  await once(duplex, 'finish');
});
