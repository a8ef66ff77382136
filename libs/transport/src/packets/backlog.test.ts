import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { mock, test } from 'node:test';
import { Waiting } from '@isthmus/runtime';
import { changed, until } from '@isthmus/runtime/testing';
import { PlaneEnded, planeEvents } from '@isthmus/tunnel';
import { streamOf } from '@isthmus/tunnel/testing';
import { TRANSPORT } from '../defaults.ts';
import { PacketMux, packetsBudget } from './mux.ts';
import { Unread } from './stream.ts';
import { channelPair, plane, request, types } from './testing.ts';

const KIB = 1024;
const MIB = 1024 * KIB;

function sha256(...chunks: readonly Uint8Array[]): string {
  const hash = createHash('sha256');
  for (const chunk of chunks) hash.update(chunk);
  return hash.digest('hex');
}

async function digestOf(stream: Duplex): Promise<string> {
  const chunks: Uint8Array[] = [];
  stream.on('data', (chunk: Uint8Array) => chunks.push(chunk));
  await once(stream, 'end');
  return sha256(...chunks);
}

test('a reader that rests holds its stream up beyond its share, and then gets every byte', async () => {
  using _ = changed(TRANSPORT, { packetsTunnelShareBytes: 128 * KIB });
  const { left } = packetsBudget;
  const { client, hub, fars } = plane();
  hub.window = 256 * KIB;
  const { end } = await client.dial(request());
  const sent = randomBytes(4 * MIB);
  fars[0]?.end(sent);
  await until(() => hub.heldUp, 'held up');
  assert.equal(left - packetsBudget.left, 128 * KIB);
  // A packet may go beyond.
  assert.ok(hub.withheld <= 320 * KIB, `${hub.withheld}`);
  assert.equal(await digestOf(streamOf(end)), sha256(sent));
  assert.deepEqual([hub.withheld, packetsBudget.left], [0, left]);
});

test('what waits within its share holds up nobody', async () => {
  using _ = changed(TRANSPORT, { packetsTunnelShareBytes: MIB });
  const { client, hub, fars } = plane();
  hub.window = 1;
  const [resting, lively] = await Promise.all([client.dial(request()), client.dial(request())]);
  fars[0]?.write(Buffer.alloc(MIB));
  await until(() => streamOf(resting.end).readableLength > 0, 'all came');
  for (let round = 0; round < 3; round++) {
    fars[1]?.write('alive');
    assert.equal(String((await once(streamOf(lively.end), 'data'))[0]), 'alive');
  }
  assert.equal(hub.withheld, 0);
});

test('many slow readers make each other a small share, beyond which each holds its stream up; none loses a byte', async () => {
  const taken = packetsBudget.left - MIB;
  assert.ok(packetsBudget.take(taken));
  const { client, hub, fars } = plane();
  const ends = await Promise.all(Array.from({ length: 30 }, () => client.dial(request())));
  const sent = randomBytes(512 * KIB);
  for (const far of fars) far.end(sent);
  await until(() => hub.withheld > 30 * 256 * KIB, 'all came');
  assert.ok(packetsBudget.left > 0);
  const digests = await Promise.all(ends.map(({ end }) => digestOf(streamOf(end))));
  assert.deepEqual(new Set(digests), new Set([sha256(sent)]));
  assert.deepEqual([hub.withheld, packetsBudget.left], [0, MIB]);
  packetsBudget.give(taken);
});

test('a reader that takes nothing while it holds up its stream is ended by the plane; its neighbours lose nothing', async () => {
  const events = planeEvents();
  const stalls: string[] = [];
  events.on('tunnel:stalled', (role) => stalls.push(role));
  using _ = changed(TRANSPORT, { packetsTunnelShareBytes: 64 * KIB, packetsPatienceMs: 1000 });
  const { client, hub, fars, served } = plane({}, events);
  hub.window = 256 * KIB;
  const [stalled, lively] = await Promise.all([client.dial(request()), client.dial(request())]);
  const sent = randomBytes(4 * MIB);
  fars[0]?.write(sent);
  const [first, rest] = [sent.subarray(0, MIB), sent.subarray(MIB)];
  const digest = digestOf(streamOf(lively.end));
  fars[1]?.write(first);
  await until(() => streamOf(stalled.end).destroyed, 'the stalled one was ended');
  assert.ok(streamOf(stalled.end).errored instanceof PlaneEnded);
  assert.match(
    String(streamOf(stalled.end).errored?.message),
    /^the caller read nothing for 1 s while \d+ bytes waited for it/,
  );
  assert.deepEqual(stalls, ['hub']);
  fars[1]?.end(rest);
  assert.equal(await digest, sha256(sent));
  await until(() => client.open === 0 || served.open === 0, 'both gone');
  assert.equal(hub.withheld, 0);
});

test('a reader that moves between any two looks is never ended, and one that held up nobody starts anew', () => {
  mock.timers.enable({ apis: ['setInterval'] });
  try {
    const [pair] = channelPair();
    pair.window = 1;
    using _ = changed(TRANSPORT, { packetsTunnelShareBytes: 0 });
    const options = { events: planeEvents(), receive() {}, closed() {} };
    const ended: Error[] = [];
    const unread = new Unread(new PacketMux(pair, { role: 'hub', ...options }), (reason) => {
      ended.push(reason);
      unread.take(unread.waiting);
    });
    unread.put(1000);
    for (let second = 0; second < 900; second++) {
      mock.timers.tick(1000);
      if (second % 9 === 0) unread.take(1);
    }
    assert.deepEqual(ended, []);
    pair.window = MIB;
    mock.timers.tick(60_000);
    pair.window = 1;
    mock.timers.tick(9_000);
    assert.deepEqual(ended, []);
    mock.timers.tick(1_000);
    assert.equal(ended.length, 1);
    assert.equal(pair.withheld, 0);
  } finally {
    mock.timers.reset();
  }
});

test('a reader that stood while another held up its stream is ended soon once it does, and not before', () => {
  mock.timers.enable({ apis: ['setInterval'] });
  try {
    const [pair] = channelPair();
    pair.window = 1;
    using _ = changed(TRANSPORT, { packetsTunnelShareBytes: 1000 });
    const mux = new PacketMux(pair, { role: 'hub', events: planeEvents(), receive() {}, closed() {} });
    const ended: string[] = [];
    const reader = (name: string) => {
      const unread = new Unread(mux, () => {
        ended.push(name);
        unread.take(unread.waiting);
      });
      return unread;
    };
    const [first, second] = [reader('first'), reader('second')];
    first.put(2000);
    second.put(500);
    mock.timers.tick(11_000);
    assert.deepEqual(ended, ['first']);
    mock.timers.tick(60_000);
    second.put(2000);
    mock.timers.tick(2000);
    assert.deepEqual(ended, ['first', 'second']);
    assert.equal(pair.withheld, 0);
  } finally {
    mock.timers.reset();
  }
});

for (const [what, shareBytes] of [['beyond', 64 * KIB]] as const) {
  test(`a reader that stands is ended also when its channel has gone, with what waits ${what} its share`, async () => {
    mock.timers.enable({ apis: ['setInterval'] });
    try {
      using _ = changed(TRANSPORT, { packetsTunnelShareBytes: shareBytes });
      const { left } = packetsBudget;
      const { client, hub, agent, fars, served } = plane();
      const [stalled, slow] = await Promise.all([client.dial(request()), client.dial(request())]);
      const sent = randomBytes(4 * MIB);
      for (const far of fars) far.end(sent);
      const closed = () => types(agent).filter((type) => type === 'CLOSE_RSP').length === 2;
      await until(closed, { every: 0, what: 'both closed, in the tick in which they are' });
      served.destroy(new Error('gone'));
      await client.closed;
      assert.deepEqual([streamOf(stalled.end).destroyed, streamOf(slow.end).destroyed], [false, false]);
      const digest = digestOf(streamOf(slow.end));
      assert.equal(await digest, sha256(sent));
      // Its patience is that of a channel that is over: nobody waits for this reader.
      for (let second = 0; second < 299; second++) mock.timers.tick(1000);
      assert.equal(streamOf(stalled.end).destroyed, false);
      for (let second = 0; second < 3; second++) mock.timers.tick(1000);
      await until(() => streamOf(stalled.end).destroyed, 'the stalled one was ended');
      assert.ok(streamOf(stalled.end).errored instanceof PlaneEnded);
      assert.match(
        String(streamOf(stalled.end).errored?.message),
        /read nothing for 300 s while \d+ bytes waited for it and came before/,
      );
      assert.deepEqual([hub.withheld, packetsBudget.left], [0, left]);
    } finally {
      mock.timers.reset();
    }
  });
}

test('small pieces that wait are put together, in order', () => {
  const waiting = new Waiting();
  const pieces = Array.from({ length: 5000 }, (_, i) => randomBytes(i % 100 === 0 ? 5000 : i % 7));
  for (const piece of pieces) waiting.push(piece);
  const whole = Buffer.concat(pieces);
  assert.equal(waiting.length, whole.length);
  const out: Uint8Array[] = [];
  for (let piece = waiting.shift(); piece; piece = waiting.shift()) out.push(piece);
  assert.deepEqual(Buffer.concat(out), whole);
  assert.ok(out.length < 200, `${out.length}`);
  assert.equal(waiting.length, 0);
});

test('pieces of large reads are kept without them, in order', () => {
  const waiting = new Waiting();
  const pieces: Uint8Array[] = [];
  for (const size of [100, 4096, 4096, 4096, 4096, 4096, 12_000, 20_000, 64 * KIB]) {
    const read = randomBytes(64 * KIB);
    // As the socket has it: a view of a buffer of its own.
    const own = Buffer.allocUnsafeSlow(read.length);
    read.copy(own);
    pieces.push(own.subarray(0, size));
  }
  for (const piece of pieces) waiting.push(piece);
  const out: Uint8Array[] = [];
  for (let piece = waiting.shift(); piece; piece = waiting.shift()) out.push(piece);
  assert.deepEqual(Buffer.concat(out), Buffer.concat(pieces));
  const kept = new Set(out.map(({ buffer }) => buffer));
  const bytes = [...kept].reduce((sum, { byteLength }) => sum + byteLength, 0);
  assert.ok(bytes <= 3 * Buffer.concat(pieces).length, `${bytes} bytes are kept for ${Buffer.concat(pieces).length}`);
});
