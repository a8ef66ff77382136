import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Socket } from 'node:net';
import { test } from 'node:test';
import { writeCoalesced } from './coalesced-writes.ts';

type Done = (error?: Error | null) => void;

/** A socket that leads nowhere. It records the size of each write that the system would get, in KiB. */
class Recorder extends Socket {
  readonly writes: number[] = [];
  /** While this is true, writes wait. */
  full = false;
  #done: Done | undefined;

  override _write(chunk: Buffer, _encoding: string, done: Done): void {
    this.#take(chunk.length, done);
  }

  override _writev(chunks: { chunk: Buffer }[], done: Done): void {
    this.#take(
      chunks.reduce((sum, { chunk }) => sum + chunk.length, 0),
      done,
    );
  }

  drain(): void {
    this.full = false;
    this.#done?.();
  }

  #take(bytes: number, done: Done): void {
    this.writes.push(bytes / 1024);
    if (this.full) this.#done = done;
    else done();
  }
}

const record = Buffer.alloc(16 * 1024);
const turn = () => new Promise((resolve) => setImmediate(resolve));

test('bulk of one turn leaves in one write, and bulk of the next turn in another', async () => {
  const socket = new Recorder();
  for (let i = 0; i < 3; i++) assert.ok(writeCoalesced(socket, record));
  assert.deepEqual(socket.writes, []);
  await turn();
  assert.deepEqual(socket.writes, [48]);
  writeCoalesced(socket, record);
  await turn();
  assert.deepEqual(socket.writes, [48, 16]);
});

test('a short message leaves at once, unless bulk before it still waits', async () => {
  const socket = new Recorder();
  const message = Buffer.alloc(1024);
  writeCoalesced(socket, message);
  assert.deepEqual(socket.writes, [1]);
  writeCoalesced(socket, record);
  writeCoalesced(socket, message);
  assert.deepEqual(socket.writes, [1]);
  await turn();
  assert.deepEqual(socket.writes, [1, 17]);
});

test('a read’s worth does not wait for the end of the turn', async () => {
  const socket = new Recorder();
  for (let i = 0; i < 9; i++) assert.ok(writeCoalesced(socket, record));
  assert.deepEqual(socket.writes, [64, 64]);
  await turn();
  assert.deepEqual(socket.writes, [64, 64, 16]);
});

test('a socket that takes nothing asks its writer to pause once it holds a read’s worth, and says when to go on', async () => {
  const socket = new Recorder();
  socket.full = true;
  assert.deepEqual(
    [1, 2, 3, 4].map(() => writeCoalesced(socket, record)),
    [true, true, true, false],
  );
  const drained = once(socket, 'drain');
  socket.drain();
  await drained;
  assert.ok(writeCoalesced(socket, record));
  await turn();
  assert.deepEqual(socket.writes, [64, 16]);
});

test('gathered data leaves before the end, and a socket destroyed meanwhile disturbs no other', async () => {
  const [ended, destroyed, other] = [new Recorder(), new Recorder(), new Recorder()];
  for (const socket of [ended, destroyed, other]) writeCoalesced(socket, record);
  ended.end();
  assert.deepEqual(ended.writes, [16]);
  destroyed.destroy();
  await turn();
  assert.deepEqual([destroyed.writes, other.writes], [[], [16]]);
});
