import assert from 'node:assert/strict';
import { Duplex } from 'node:stream';
import { afterEach, describe, mock, test } from 'node:test';
import { setImmediate as tick } from 'node:timers/promises';
import { endOf, joined, StreamAsHalf } from '../testing/index.ts';
import { ByteMeter } from './byte-meter.ts';
import { UNLIMITED } from './limits.ts';
import type { DialLimits } from './table.ts';

describe('byte meter', () => {
  const KIB = 1024;
  const MIB = 1024 * KIB;
  const CHUNK = Buffer.alloc(64 * KIB);

  afterEach(() => {
    mock.timers.reset();
    mock.restoreAll();
  });

  /** A stream that always has bytes, as fast as it is read. */
  class Endless extends Duplex {
    constructor() {
      super({ readableHighWaterMark: 64 * KIB });
    }
    override _read(): void {
      // In a turn of its own, as sockets do: otherwise an endless stream never gives way.
      setImmediate(() => this.push(CHUNK));
    }
    override _write(_chunk: Buffer, _encoding: string, done: () => void): void {
      done();
    }
  }

  /** A stream that takes bytes only while it is told to. */
  class Reader extends Duplex {
    stands = false;
    got = 0;
    #done: (() => void) | undefined;
    constructor() {
      super({ writableHighWaterMark: 64 * KIB });
    }
    override _read(): void {}
    override _write(chunk: Buffer, _encoding: string, done: () => void): void {
      this.got += chunk.length;
      if (this.stands) this.#done = done;
      else done();
    }
    goOn(): void {
      this.stands = false;
      this.#done?.();
    }
  }

  function tunnel(meter: ByteMeter, detached = false) {
    const source = new Endless();
    const sink = new Reader();
    for (const stream of [source, sink]) stream.on('error', () => {});
    const splice = joined(new StreamAsHalf(sink, { detached }), endOf(source), meter);
    return { source, sink, splice };
  }

  /** A meter whose clock and timers stand still, and limits that the test changes. */
  function metered(limits: Partial<DialLimits>) {
    mock.timers.enable({ apis: ['setInterval'] });
    const state = { now: 0, limits: { ...UNLIMITED, ...limits } };
    mock.method(performance, 'now', () => state.now);
    const meter = new ByteMeter('acme', () => state.limits);
    return {
      meter,
      state,
      /** Lets time pass in steps of `step` milliseconds. */
      async pass(ms: number, step = 20) {
        for (let at = 0; at < ms; at += step) {
          state.now += step;
          mock.timers.tick(step);
          for (let i = 0; i < 4; i++) await tick();
        }
      },
    };
  }

  test('tunnels of a tenant share its rate, each gets on, and nothing is lost', async () => {
    const { meter, pass } = metered({ bytesPerSecond: 10 * MIB });
    const tunnels = Array.from({ length: 8 }, () => tunnel(meter));
    await pass(4000);
    const got = tunnels.map(({ sink }) => sink.got);
    const sum = got.reduce((total, each) => total + each, 0);
    assert.ok(sum > 0.95 * 40 * MIB && sum < 1.1 * 40 * MIB, `${sum / MIB} MiB in 4 s`);
    assert.ok(Math.min(...got) > 0.5 * (sum / 8), `${got}`);
    assert.equal(meter.bytes, sum);
    for (const { splice, sink } of tunnels) {
      assert.equal(splice.down, sink.got);
      splice.abort(new Error('enough'));
    }
    await Promise.all(tunnels.map(({ splice }) => splice.done));
  });

  test('a rate that is lifted while tunnels wait lets them go on', async () => {
    const { meter, state, pass } = metered({ bytesPerSecond: 64 * KIB });
    const { sink, splice } = tunnel(meter);
    await pass(1000);
    assert.ok(sink.got <= 4 * 64 * KIB, `${sink.got}`);
    state.limits = UNLIMITED;
    const before = sink.got;
    await pass(100);
    assert.ok(sink.got > before + MIB);
    splice.abort(new Error('enough'));
    await splice.done;
  });

  test('stalled tunnels hold no more than bytesQueued and a read each, and end after 10 s while others wait', async () => {
    const { meter, pass } = metered({ bytesQueued: MIB });
    const stalled = Array.from({ length: 40 }, () => tunnel(meter));
    for (const { sink } of stalled) sink.stands = true;
    const moving = tunnel(meter);
    await pass(200);
    assert.ok(meter.queued >= MIB && meter.queued <= MIB + 40 * 64 * KIB, `${meter.queued}`);
    const heldUp = moving.sink.got;
    await pass(2000);
    assert.equal(moving.sink.got, heldUp, 'no tunnel is read over the limit');
    await pass(10_000);
    const ends = await Promise.all(stalled.map(({ splice }) => splice.done));
    for (const { by, error } of ends) {
      assert.equal(by, 'limit');
      assert.match(
        String(error),
        /took nothing for 10 s while tenant acme had its limit bytesQueued of 1048576 waiting/,
      );
    }
    await pass(100);
    assert.ok(moving.sink.got > heldUp, 'those that move go on');
    assert.equal(moving.sink.destroyed, false);
    assert.ok(meter.queued < MIB);
    moving.splice.abort(new Error('enough'));
    await moving.splice.done;
  });

  test('a tunnel that waits for another way to its reader does not count as standing', async () => {
    const { meter, pass } = metered({ bytesQueued: 64 * KIB });
    const [detached, stalled] = [tunnel(meter, true), tunnel(meter)];
    for (const { sink } of [detached, stalled]) sink.stands = true;
    await pass(12_000);
    assert.match(String((await stalled.splice.done).error), /took nothing/);
    assert.equal(detached.sink.destroyed, false);
    detached.splice.abort(new Error('enough'));
    await detached.splice.done;
  });

  test('below the limit a standing reader is left alone, and its bytes count until it reads', async () => {
    const { meter, pass } = metered({ bytesQueued: MIB });
    const { sink, splice } = tunnel(meter);
    sink.stands = true;
    await pass(30_000, 500);
    assert.equal(sink.destroyed, false);
    assert.equal(meter.queued, 64 * KIB);
    sink.goOn();
    await pass(100);
    assert.equal(meter.queued, 0);
    splice.abort(new Error('enough'));
    await splice.done;
  });

  test('a slow reader that moves is not ended over the limit', async () => {
    const { meter, pass } = metered({ bytesQueued: 64 * KIB });
    const { sink, splice } = tunnel(meter);
    for (let second = 0; second < 15; second++) {
      sink.stands = true;
      await pass(1000, 100);
      sink.goOn();
      await pass(100);
    }
    assert.equal(sink.destroyed, false);
    splice.abort(new Error('enough'));
    await splice.done;
  });
});
