import assert from 'node:assert/strict';
import { Duplex } from 'node:stream';
import { afterEach, describe, mock, test } from 'node:test';
import { setImmediate as tick } from 'node:timers/promises';
import { WIRE } from '../defaults.ts';
import { DEFAULT_SETTINGS, ErrorCode, FRAME_HEAD } from './frames.ts';
import { Output, SendGroup } from './output.ts';
import { behindAny, behindBulk, type Patience } from './pings.ts';

describe('output', () => {
  const CHUNK = Buffer.alloc(64 * 1024);
  const NOTHING = Buffer.alloc(0);

  /** A connection that takes one write a tick of the event loop. */
  function slow(): Duplex {
    return new Duplex({ read() {}, write: (_chunk, _encoding, done) => setImmediate(done) });
  }

  /** Waits, tick by tick, until it holds. */
  async function eventually(holds: () => boolean): Promise<void> {
    const deadline = performance.now() + 60_000;
    while (!holds()) {
      assert.ok(performance.now() < deadline, 'not within a minute');
      await tick();
    }
  }

  /** Always has more to send, once it is asked for it. */
  class Busy {
    offered = false;
    sendable = true;
    pending = CHUNK.length;
    sent = 0;
    readonly group: SendGroup;
    readonly #output: Output;

    constructor(output: Output, group = new SendGroup()) {
      this.#output = output;
      this.group = group;
      output.offer(this);
    }

    sendFrame(output: Output): number {
      output.add(CHUNK);
      this.sendable = false;
      this.sent++;
      this.#output.awaitTurn(this, this.group);
      return CHUNK.length;
    }

    writeMore(): void {
      this.sendable = true;
      this.#output.offer(this);
    }
  }

  /** Has so many bytes to send. */
  class Finite {
    offered = false;
    left: number;
    readonly group: SendGroup;

    constructor(bytes: number, output: Output, group = new SendGroup()) {
      this.left = bytes;
      this.group = group;
      output.offer(this);
    }

    get sendable(): boolean {
      return this.left > 0;
    }

    get pending(): number {
      return this.left;
    }

    sendFrame(output: Output, limit: number): number {
      const length = Math.min(limit, this.left);
      output.add(Buffer.alloc(FRAME_HEAD));
      output.add(Buffer.alloc(length));
      this.left -= length;
      return length;
    }

    writeMore(): void {}
  }

  /** An output to a socket, with a connection window of so many bytes. @param checkpoints gets what to call when one of its checkpoints was read */
  function outputTo(
    socket: Duplex,
    window = 2 ** 31 - 1,
    checkpoints: ((took: number) => void)[] = [],
    patience: Patience = behindBulk(WIRE),
  ): Output {
    const checkpoint = (read: (took: number) => void) => {
      checkpoints.push(read);
      return NOTHING;
    };
    const failed = () => assert.fail('no frame waits');
    const output = new Output({
      socket,
      greeting: NOTHING,
      defer: setImmediate,
      config: { ...WIRE, backlogBytes: 2 ** 30 },
      patience,
      checkpoint,
      failed,
    });
    output.maxFrame = CHUNK.length;
    output.widen(window - DEFAULT_SETTINGS.initialWindowSize);
    return output;
  }

  for (const highWaterMark of [16 * 1024, 1024 * 1024]) {
    test(`a write is no longer than one segment, to a socket that takes ${highWaterMark / 1024} KiB`, async () => {
      const writes: number[] = [];
      const socket = new Duplex({
        highWaterMark,
        read() {},
        writev(chunks, done) {
          writes.push(chunks.reduce((sum, { chunk }) => sum + chunk.length, 0));
          setImmediate(done);
        },
      });
      const output = outputTo(socket);
      const group = new SendGroup();
      const streams = [300_000, 100, 40_000, 200_000].map((bytes) => new Finite(bytes, output, group));
      await eventually(() => streams.every(({ left }) => left === 0) && socket.writableLength === 0);
      assert.ok(Math.max(...writes) <= 65_300, `${writes}`);
      assert.ok(writes.length <= 10, `${writes}`);
    });
  }

  test('of many streams that send bulk few have some at hand, and all get on alike', async () => {
    const output = outputTo(slow());
    const group = new SendGroup();
    const streams = Array.from({ length: 100 }, () => new Busy(output, group));
    const least = () => Math.min(...streams.map(({ sent }) => sent));
    let most = 0;
    await eventually(() => {
      if (least() > 0) most = Math.max(most, streams.filter(({ sendable }) => sendable).length);
      return least() >= 5;
    });
    assert.ok(most > 0 && most <= 16, `${most} had something`);
    assert.ok(Math.max(...streams.map(({ sent }) => sent)) <= 6);
  });

  test('streams that wait for more are asked for it when the connection’s window opens', async () => {
    const output = outputTo(slow(), 10 * CHUNK.length);
    const group = new SendGroup();
    const streams = Array.from({ length: 20 }, () => new Busy(output, group));
    const sent = () => streams.reduce((sum, stream) => sum + stream.sent, 0);
    await eventually(() => !output.hasRoom && sent() >= 10);
    const before = sent();
    output.widen(40 * CHUNK.length);
    await eventually(() => sent() >= before + 40);
  });

  test('groups send alike, however many streams each has, and streams of a group do', async () => {
    const output = outputTo(slow());
    const [a, b] = [new SendGroup(), new SendGroup()];
    const large = 64 * CHUNK.length;
    const flood = Array.from({ length: 40 }, () => new Finite(large, output, a));
    const few = Array.from({ length: 2 }, () => new Finite(large, output, b));
    const sent = (streams: Finite[]) => streams.map(({ left }) => large - left);
    const sum = (streams: Finite[]) => sent(streams).reduce((total, each) => total + each, 0);
    await eventually(() => sum(few) >= large);
    assert.ok(Math.abs(sum(flood) - sum(few)) <= 2 * CHUNK.length, `${sum(flood)} and ${sum(few)}`);
    for (const streams of [flood, few]) {
      const each = sent(streams);
      assert.ok(Math.max(...each) - Math.min(...each) <= CHUNK.length, `${each}`);
    }
  });

  test('what a quiet group sends leaves with the next write after those that wait, whatever waits in others', async () => {
    const { output, writes, accept } = written();
    const flood = new SendGroup();
    for (let i = 0; i < 300; i++) new Finite(2 ** 30, output, flood);
    await tick();
    for (let i = 0; i < 10; i++) {
      const ping = new Finite(50, output, new SendGroup());
      // The socket takes two writes ahead of the reader.
      for (let i = 0; i < 2; i++) {
        accept();
        await tick();
        await tick();
      }
      assert.equal(ping.left, 0, `after ${writes.join(', ')}`);
    }
  });

  test('of one group, too, a stream with little to send waits for one frame of bulk, and many of them let bulk through', async () => {
    const { output, accept } = written();
    const group = new SendGroup();
    const bulk = Array.from({ length: 300 }, () => new Finite(2 ** 20, output, group));
    await tick();
    const small = Array.from({ length: 2 }, () => new Finite(50, output, group));
    for (let i = 0; i < 6; i++) {
      accept();
      await tick();
      await tick();
    }
    assert.deepEqual(
      small.map(({ left }) => left),
      [0, 0],
    );
    for (let i = 0; i < 1000; i++) new Finite(50, output, group);
    const before = bulk.reduce((sum, { left }) => sum + left, 0);
    for (let i = 0; i < 10; i++) {
      accept();
      await tick();
      await tick();
    }
    const sent = before - bulk.reduce((sum, { left }) => sum + left, 0);
    assert.ok(sent >= 4 * CHUNK.length, `${sent} bytes of bulk`);
  });

  test('a group whose streams have to be asked for more has its share beside many that are ready', async () => {
    const output = outputTo(slow());
    const [a, b] = [new SendGroup(), new SendGroup()];
    const flood = Array.from({ length: 64 }, () => new Busy(output, a));
    const one = new Busy(output, b);
    await eventually(() => one.sent >= 200);
    const ofFlood = flood.reduce((sum, { sent }) => sum + sent, 0);
    assert.ok(ofFlood <= 1.1 * one.sent, `${ofFlood} beside ${one.sent}`);
  });

  test('streams of many groups that close while nothing may leave are forgotten', async () => {
    const output = outputTo(slow());
    const groups = [new SendGroup(), new SendGroup()];
    for (let i = 0; i < 5000; i++) new Finite(1, output, groups[i % 2]).left = 0;
    const last = groups.map((group) => new Finite(10, output, group));
    const waiting = groups.reduce((sum, { size }) => sum + size, 0);
    assert.ok(waiting <= 2002, `${waiting}`);
    await eventually(() => last.every(({ left }) => left === 0));
  });

  afterEach(() => mock.timers.reset());

  /** An output whose socket accepts what is written when the test says so. */
  function written(patience = behindBulk(WIRE)) {
    const writes: string[] = [];
    let accept = () => {};
    const socket = new Duplex({
      highWaterMark: CHUNK.length,
      read() {},
      write(chunk: Buffer, _encoding, done) {
        writes.push(chunk.length > 20 ? `${chunk.length} bytes` : String(chunk));
        accept = done;
      },
      writev(chunks, done) {
        writes.push(`${chunks.length} parts`);
        accept = done;
      },
    });
    return { output: outputTo(socket, undefined, undefined, patience), writes, accept: () => accept() };
  }

  test('what is added in one tick leaves in one write', async () => {
    const { output, writes, accept } = written();
    for (const text of ['a', 'b']) output.frame(Buffer.from(text));
    assert.deepEqual(writes, []);
    await tick();
    assert.deepEqual(writes, ['ab']);
    accept();
    output.frame(Buffer.alloc(8_192));
    output.frame(Buffer.from('c'));
    await tick();
    assert.deepEqual(writes, ['ab', '2 parts']);
  });

  test('what may be late waits for bulk, and goes alone when none comes', async () => {
    mock.timers.enable({ apis: ['setTimeout'] });
    const { output, writes, accept } = written();
    output.lateFrame(Buffer.from('ping'));
    output.frame(Buffer.from('short'));
    await tick();
    assert.deepEqual(writes, ['short']);
    accept();
    output.frame(Buffer.alloc(1_024));
    await tick();
    assert.deepEqual(writes, ['short', '1028 bytes']);
    accept();
    output.lateFrame(Buffer.from('ping'));
    mock.timers.tick(100);
    await tick();
    assert.deepEqual(writes, ['short', '1028 bytes', 'ping']);
    accept();
    output.lateFrame(Buffer.from('late'));
    output.stop();
    mock.timers.tick(100);
    await tick();
    assert.deepEqual(writes, ['short', '1028 bytes', 'ping']);
  });

  test('the end of a stream waits for any frame, and goes alone when none comes', async () => {
    mock.timers.enable({ apis: ['setTimeout'] });
    const { output, writes, accept } = written(behindAny(WIRE));
    output.lateFrame(Buffer.from('end'));
    await tick();
    assert.deepEqual(writes, []);
    output.frame(Buffer.from('short '));
    await tick();
    assert.deepEqual(writes, ['short end']);
    accept();
    output.lateFrame(Buffer.from('end'));
    mock.timers.tick(10);
    await tick();
    assert.deepEqual(writes, ['short end', 'end']);
  });

  test('a flood of what may be late does not wait', async () => {
    const { output, writes } = written();
    output.lateFrame(Buffer.alloc(1_024));
    output.lateFrame(Buffer.from('one more'));
    await tick();
    assert.deepEqual(writes, ['1032 bytes']);
  });

  test('the connection’s window is enlarged by something, and to 2^31 - 1 bytes at most', () => {
    const { output } = written();
    for (const [bytes, code] of [
      [0, ErrorCode.PROTOCOL_ERROR],
      [1, ErrorCode.FLOW_CONTROL_ERROR],
    ] as const)
      assert.throws(() => output.widen(bytes), { name: 'ConnectionError', code });
  });
});
