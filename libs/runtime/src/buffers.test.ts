import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { MultiplexedDuplex } from './buffers.ts';

/** What a MultiplexedDuplex asked of what lies below it. */
class Recorded extends MultiplexedDuplex {
  readonly pieces: Buffer[] = [];
  readonly got: number[] = [];
  ends = 0;
  turns = 0;
  /** Whether what is sent has still to leave. */
  slow = true;

  protected override send(piece: Buffer): void {
    this.pieces.push(piece);
  }

  protected override get sending(): boolean {
    return this.slow;
  }

  protected override sendEnd(): void {
    this.ends++;
  }

  protected override taken(bytes: number): void {
    this.got.push(bytes);
  }

  protected override awaitTurn(): void {
    this.turns++;
  }

  arrive(text: string): void {
    this.received(Buffer.from(text));
  }

  /** What was sent has left. */
  leave(): void {
    this.sent();
  }

  left(): void {
    this.endSent();
  }

  override get unread(): number {
    return super.unread;
  }
}

const lengths = ({ pieces }: Recorded) => pieces.map(({ length }) => length);

test('one write is under way at a time, and short pieces that waited for it leave as one', () => {
  const stream = new Recorded();
  for (const piece of ['first', 'a', 'b', 'c']) stream.write(piece);
  assert.deepEqual(lengths(stream), [5]);
  stream.leave();
  assert.deepEqual(lengths(stream), [5, 3]);
  assert.equal(String(stream.pieces[1]), 'abc');
});

test('long pieces that waited leave as they are, without a copy', () => {
  const stream = new Recorded();
  const long = [Buffer.alloc(4096), Buffer.alloc(4096)];
  stream.write('first');
  for (const piece of long) stream.write(piece);
  stream.leave();
  assert.ok(stream.pieces[1]?.buffer === long[0]?.buffer && stream.pieces[2]?.buffer === long[1]?.buffer);
});

test('what leaves at once is written at once', async () => {
  const stream = new Recorded();
  stream.slow = false;
  const written = new Promise<void>((resolve) => void stream.write('now', () => resolve()));
  await written;
  assert.deepEqual(lengths(stream), [3]);
});

test('bytes count as read once the reader has them', () => {
  const stream = new Recorded();
  const taken = () => stream.got.reduce((sum, bytes) => sum + bytes, 0);
  stream.arrive('hello ');
  stream.arrive('world');
  assert.ok(stream.unread > 0, 'nobody reads');
  assert.equal(taken() + stream.unread, 11);
  let read = '';
  for (let chunk = stream.read(); chunk !== null; chunk = stream.read()) read += chunk;
  assert.equal(read, 'hello world');
  assert.equal(taken(), 11);
});

test('a bulk writer is asked for more on its turn, and a writer of little at once', async () => {
  const stream = new Recorded();
  let drained = 0;
  stream.write(Buffer.alloc(64 * 1024), () => drained++);
  stream.leave();
  assert.deepEqual([stream.turns, drained], [1, 0]);
  stream.writeMore();
  stream.write('little', () => drained++);
  stream.leave();
  assert.equal(stream.turns, 1);
  await new Promise(setImmediate);
  assert.equal(drained, 2);
});

test('a bulk writer that has ended waits for no turn', async () => {
  const stream = new Recorded();
  stream.end(Buffer.alloc(64 * 1024));
  stream.leave();
  await new Promise(setImmediate);
  assert.deepEqual([stream.turns, stream.ends, stream.writableFinished], [0, 1, false]);
  stream.left();
  await once(stream, 'finish');
});
