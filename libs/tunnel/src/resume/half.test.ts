import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { SharedBudget } from '@isthmus/runtime';
import type { EndUser } from '../end.ts';
import { HungUp, SessionLost } from '../errors.ts';
import { SeededTime } from '../testing/channel.ts';
import { RecordingCarrier } from '../testing/index.ts';
import { AgentTunnel } from './agent-tunnels.ts';
import { type AttachAnswer, type AttachPosition, AttachRefused, encodeMark } from './carrier.ts';
import { GatewayHalf } from './gateway-tunnels.ts';
import { type Halves, halvesOf } from './halves.ts';

const LIMIT = 1_000_000;

class AgentEnd extends AgentTunnel {
  told: string[] = [];

  constructor(halves: Halves) {
    super({ tenant: 'acme', destination: { host: 'x', port: 1 } }, '', halves, () => {});
  }

  /** Bytes that have arrived and were not taken. */
  get untaken(): number {
    return this.received - this.taken;
  }

  protected override gone(): void {
    this.told.push('gone');
  }
}

class GatewayEnd extends GatewayHalf {
  readonly tenant = 'acme';
  told: string[] = [];
  readonly asked: AttachPosition[] = [];

  protected override attach(request: AttachPosition): void {
    this.asked.push(request);
  }

  /** Bytes that have arrived and were not taken. */
  get untaken(): number {
    return this.received - this.taken;
  }

  protected override gone(): void {
    this.told.push('gone');
  }
}

function setUp() {
  const told: string[] = [];
  const user: EndUser = {
    onData: (bytes) => void told.push(`${Buffer.from(bytes)}`),
    onEnd: () => void told.push('end'),
    onDrain: () => void told.push('may write'),
    onClose: (failure) => void told.push(`over: ${failure?.message ?? 'clean'}`),
  };
  const time = new SeededTime(1);
  const halves = halvesOf({ timeoutMs: 15_000, budget: new SharedBudget(0) }, time, LIMIT, LIMIT);
  return { told, time, user, halves, carrier: new RecordingCarrier() };
}

/** Has an end told what comes, and begins with a carrier. */
function begun<End extends AgentEnd | GatewayEnd>(
  half: End,
  { told, user, carrier }: Pick<ReturnType<typeof setUp>, 'told' | 'user' | 'carrier'>,
): End {
  half.told = told;
  half.use(user);
  half.start(carrier);
  return half;
}

function agentHalf() {
  const { user, halves, ...rest } = setUp();
  const half = begun(new AgentEnd(halves), { user, ...rest });
  const attach = (request: Partial<AttachPosition>) => {
    const next = new RecordingCarrier();
    let answer: AttachAnswer | undefined;
    half.attach({ number: 1, received: 0, taken: 0, ...request }, (sent) => {
      answer = sent;
      return next;
    });
    return { next, answer };
  };
  return { ...rest, half, attach };
}

function gatewayHalf() {
  const { user, halves, ...rest } = setUp();
  const half = begun(new GatewayEnd(halves), { user, ...rest });
  return { ...rest, half, asked: half.asked };
}

const refused = (final: boolean, message: RegExp) => (error: unknown) =>
  error instanceof AttachRefused && error.final === final && message.test(error.message);

test('the agent goes on where the gateway has got to, and the old carrier is not listened to', () => {
  const { half, carrier, attach, told } = agentHalf();
  half.write(Buffer.from('hello'));
  half.onData(Buffer.from('abc'));
  const { next, answer } = attach({ received: 2 });
  assert.deepEqual(answer, { received: 3, taken: 3, from: 2 });
  assert.deepEqual([carrier.told, next.told], [['data hello', 'drop'], ['data llo']]);
  assert.deepEqual([carrier.half, next.half], [undefined, half]);
  half.onData(Buffer.from('d'));
  assert.deepEqual(told, ['abc', 'd']);
});

test('each 128 KiB that is taken is acknowledged at once, however large the window of the stream is', () => {
  const { half, carrier } = agentHalf();
  carrier.consume = () => false;
  for (let count = 1; count <= 5; count++) half.onData(Buffer.alloc(64 * 1024));
  assert.deepEqual(carrier.marks, [{ taken: 128 * 1024 }, { taken: 256 * 1024 }]);
});

test('an attach that is overtaken, or whose positions cannot be true, is refused, and the tunnel goes on', () => {
  const { half, attach } = agentHalf();
  half.write(Buffer.from('hello'));
  const { next } = attach({ number: 3, received: 5 });
  for (const number of [3, 2, 0])
    assert.throws(() => attach({ number }), refused(false, /attach \d came after attach 3/));
  assert.throws(() => attach({ number: 4, received: 6 }), refused(true, /it got 6 of 5 bytes/));
  assert.throws(() => attach({ number: 4, taken: 6 }), refused(true, /it took 6 of 5 bytes/));
  half.onData(Buffer.from('abc'));
  assert.throws(() => attach({ number: 4, final: 2 }), refused(true, /cannot end at byte 2/));
  half.write(Buffer.from('!'));
  assert.deepEqual(next.told, ['data !']);
});

test('an agent whose destination failed while there was no carrier tells the reason at the next attach, for a while', () => {
  const { half, carrier, attach, told, time } = agentHalf();
  carrier.lose(new Error('the link was lost'));
  half.abort(new Error('connection reset by peer'));
  assert.throws(() => attach({}), refused(true, /connection reset by peer/));
  assert.deepEqual(told, ['over: connection reset by peer']);
  time.run(20_000);
  assert.deepEqual(told, ['over: connection reset by peer', 'gone']);
  assert.throws(() => attach({}), refused(true, /the tunnel has ended/));
});

test('bytes that were taken are acknowledged with the window, when asked, or after a quarter of a second', () => {
  const { half, carrier, time } = agentHalf();
  half.onData(Buffer.alloc(65_535));
  assert.deepEqual(carrier.marks, []);
  half.onData(Buffer.alloc(1));
  assert.deepEqual(carrier.marks, [{ taken: 65_536 }]);
  half.onData(Buffer.alloc(10));
  time.run(249);
  assert.equal(carrier.marks.length, 1);
  time.run(250);
  assert.deepEqual(carrier.marks.slice(1), [{ taken: 65_546 }]);
});

test('a writer waits while the other half lets too much wait, and while there is no carrier', () => {
  const { half, carrier, asked, told } = gatewayHalf();
  assert.equal(half.write(Buffer.alloc(LIMIT)), false);
  assert.deepEqual([half.kept, half.writableLength], [LIMIT, LIMIT]);
  half.onMark(encodeMark({ taken: 1 }));
  assert.deepEqual([half.kept, told], [LIMIT - 1, ['may write']]);
  carrier.lose(new Error('the link was lost'));
  assert.equal(half.write(Buffer.alloc(LIMIT / 4)), false);
  const sent = 1.25 * LIMIT;
  const answer = { received: sent, taken: sent, from: 0 };
  half.attachedTo((asked[0] as AttachPosition).number, new RecordingCarrier(), answer);
  assert.deepEqual([half.kept, told], [0, ['may write', 'may write']]);
});

test('a gateway that finds no way to the agent in time ends the tunnel with the first reason', () => {
  const { half, carrier, asked, told, time } = gatewayHalf();
  carrier.lose(new Error('the link was lost'));
  const fail = () => {
    const { number } = asked.at(-1) as AttachPosition;
    half.attachFailed(number, new Error('no hub'), false);
  };
  for (let at = 0; at < 14_000; at += 1000) {
    fail();
    time.run(at + 1000);
  }
  assert.deepEqual([asked.length > 10, told], [true, []]);
  time.run(15_001);
  assert.deepEqual(told, ['over: the link was lost', 'gone']);
});

test('an agent waits for a gateway that has hung up as long as links may be silent, and no longer', () => {
  const { carrier, told, time } = agentHalf();
  carrier.lose(new HungUp('the gateway has hung up'));
  time.run(4_999);
  assert.deepEqual(told, []);
  time.run(5_500);
  assert.deepEqual(told, ['over: the gateway has hung up', 'gone']);
});

test('a gateway whose agent has gone ends the tunnel at once', () => {
  const { half, carrier, asked, told } = gatewayHalf();
  carrier.lose(new Error('the link was lost'));
  half.attachFailed((asked[0] as AttachPosition).number, new Error('it has restarted'), true);
  assert.deepEqual(told, ['over: it has restarted', 'gone']);
});

test('a gateway whose caller went away while there was no carrier tells the agent once there is one', () => {
  const { half, carrier, asked, told } = gatewayHalf();
  carrier.lose(new Error('the link was lost'));
  half.abort(new Error('the caller reset its connection'));
  assert.deepEqual(told, ['over: the caller reset its connection']);
  const next = new RecordingCarrier();
  half.attachedTo((asked[0] as AttachPosition).number, next, { received: 0, taken: 0, from: 0 });
  assert.deepEqual([next.told, told.at(-1)], [['abort the caller reset its connection'], 'gone']);
});

test('an answer that leaves bytes out, or asks for some that were taken, ends the tunnel', () => {
  for (const [answer, fault] of [
    [{ received: 5, taken: 0, from: 4 }, /it goes on with byte 4, and byte 3 is next/],
    [{ received: 1, taken: 0, from: 3 }, /it asks for byte 1, and has taken those before 2/],
    [{ received: 9, taken: 0, from: 3 }, /it got 9 of 5 bytes/],
  ] as const) {
    const { half, asked, told } = gatewayHalf();
    half.write(Buffer.from('hello'));
    half.onMark(encodeMark({ taken: 2 }));
    half.onData(Buffer.from('abc'));
    half.reattach();
    half.attachedTo((asked[0] as AttachPosition).number, new RecordingCarrier(), answer);
    assert.match(told.at(-2) ?? '', fault);
  }
});

test('an attach that fails while the old carrier carries changes nothing', () => {
  const { half, asked, told } = gatewayHalf();
  half.reattach();
  half.reattach();
  assert.equal(asked.length, 1);
  half.attachFailed((asked[0] as AttachPosition).number, new Error('there is no such tunnel'), true);
  half.onData(Buffer.from('abc'));
  assert.deepEqual(told, ['abc']);
});

test('the end is told before the tunnel is over', () => {
  const { half, carrier, told } = agentHalf();
  half.finish();
  half.onMark(encodeMark({ taken: 1, final: 3 }));
  half.onData(Buffer.from('abc'));
  assert.deepEqual(told, ['abc', 'end', 'over: clean']);
  assert.deepEqual(carrier.marks.at(-1), { taken: 4, final: 0 });
});

test('an agent that accepts each attach and drops it is asked ever less often, and not for ever', () => {
  const { half, carrier, asked, told, time } = gatewayHalf();
  carrier.lose(new Error('the link was lost'));
  for (let ms = 0; ms < 20_000; ms++) {
    const request = asked.at(-1) as AttachPosition;
    const next = new RecordingCarrier();
    half.attachedTo(request.number, next, { received: 0, taken: 0, from: 0 });
    next.lose(new Error('dropped'));
    time.run(ms + 1);
  }
  assert.ok(asked.length < 40, `${asked.length} attaches`);
  assert.deepEqual(told.slice(-2), ['over: the link was lost', 'gone']);
});

test('an agent that drops each attach after a byte is not asked at once', () => {
  const { half, carrier, asked, time } = gatewayHalf();
  half.write(Buffer.from('hello'));
  carrier.lose(new Error('reset'));
  assert.equal(asked.length, 1);
  for (let count = 1; count <= 3; count++) {
    const next = new RecordingCarrier();
    half.attachedTo(count, next, { from: 0, received: count, taken: count });
    next.lose(new Error('reset'));
    assert.equal(asked.length, count);
    time.run(1000 * count);
    assert.equal(asked.length, count + 1);
  }
});

test('a tunnel that is complete does not wait for ever for the other half to say so', () => {
  const { half, carrier, told, time } = gatewayHalf();
  half.finish();
  half.onMark(encodeMark({ taken: 1, final: 0 }));
  assert.deepEqual(told, ['end', 'over: clean']);
  time.run(15_001);
  assert.deepEqual([told.at(-1), carrier.told.at(-1)], ['gone', 'drop']);
});

test('a tunnel that the other half has ended has no way, and nothing that waits, so nobody takes its reader for stalled', () => {
  const { half, carrier, told } = gatewayHalf();
  carrier.pending = 1;
  half.write(Buffer.alloc(900_000));
  assert.deepEqual([half.attached, half.detached, half.writableLength], [true, false, 900_000]);
  carrier.lose(new Error('reset by peer'), true);
  assert.deepEqual(told, ['over: reset by peer', 'gone']);
  assert.deepEqual([half.attached, half.detached, half.writableLength], [false, true, 0]);
});

test('a tunnel that is complete ends at once if the other half breaks the rules', () => {
  const { half, carrier, told } = gatewayHalf();
  half.finish();
  half.onMark(encodeMark({ taken: 1, final: 0 }));
  half.onMark(Buffer.from('?'));
  assert.deepEqual(told, ['end', 'over: clean', 'gone']);
  assert.match(carrier.told.at(-1) ?? '', /^abort .* a mark that cannot be read$/);
});

test('a half refuses what the other would not take', () => {
  const { half } = gatewayHalf();
  half.write(Buffer.alloc(2 * LIMIT));
  assert.throws(() => half.write(Buffer.alloc(1)), /1 bytes were written with 2000000 unacknowledged/);
});

test('a half that breaks the rules of a carrier ends the tunnel', () => {
  const breaks: readonly [(half: GatewayHalf) => void, RegExp][] = [
    [(half) => half.onMark(encodeMark({ taken: 1 })), /it took 1 of 0 bytes/],
    [
      (half) => {
        half.write(Buffer.from('ab'));
        half.onMark(encodeMark({ taken: 2 }));
        half.onMark(encodeMark({ taken: 1 }));
      },
      /it took 1 bytes, after 2/,
    ],
    [
      (half) => {
        half.onMark(encodeMark({ taken: 0, final: 3 }));
        half.onData(Buffer.from('abcd'));
      },
      /beyond its end/,
    ],
    [(half) => half.onMark(Buffer.from('?')), /it sent a mark that cannot be read/],
  ];
  for (const [act, fault] of breaks) {
    const { half, carrier, told } = gatewayHalf();
    act(half);
    assert.match(told.at(-2) ?? '', fault);
    assert.match(carrier.told.at(-1) ?? '', /^abort the other end of the tunnel is in disorder/);
  }
});

test('what waits here when another carrier comes is dropped, and that one brings it again', () => {
  for (const readsMeanwhile of [true, false]) {
    const { half, carrier, asked, told } = gatewayHalf();
    half.onData(Buffer.from('ab'));
    half.pause();
    half.onData(Buffer.from('cd'));
    half.onMark(encodeMark({ taken: 0, final: 4 }));
    carrier.lose(new SessionLost('it is lost'));
    const { number, received } = asked.at(-1) as AttachPosition;
    assert.equal(received, 2);
    if (readsMeanwhile) half.resume();
    const next = new RecordingCarrier();
    assert.ok(half.attachedTo(number, next, { received: 0, taken: 0, from: received, final: 4 }));
    assert.equal(half.untaken, 0);
    half.onData(Buffer.from('cd'));
    half.resume();
    assert.deepEqual(told, ['ab', 'cd', 'end']);
  }
});

test('the end of a tunnel tells how far its bytes have come', () => {
  const { half } = agentHalf();
  half.write(Buffer.from('hello'));
  half.finish();
  assert.equal(half.progress, 0);
  half.onMark(encodeMark({ taken: 3 }));
  assert.equal(half.progress, 3);
});

test('what came before there was a user waits for it, and only then is the end taken', async () => {
  const { told, halves, carrier, user } = setUp();
  const half = new AgentEnd(halves);
  half.start(carrier);
  half.onData(Buffer.from('hel'));
  half.onData(Buffer.from('lo'));
  half.onMark(encodeMark({ taken: 0, final: 5 }));
  half.finish();
  assert.deepEqual(carrier.marks, [{ taken: 0, final: 0 }]);
  half.use(user);
  assert.deepEqual(told, []);
  await setImmediate();
  assert.deepEqual(told, ['hello', 'end']);
  assert.deepEqual(carrier.marks.at(-1), { taken: 6, final: 0 });
});

test('a user that has paused gets neither bytes nor the end, and what it takes later is acknowledged then', () => {
  const { half, carrier, told } = agentHalf();
  half.pause();
  half.onData(Buffer.from('tail'));
  half.onMark(encodeMark({ taken: 0, final: 4 }));
  half.finish();
  assert.deepEqual([told, half.untaken], [[], 4]);
  half.resume();
  assert.deepEqual([told, half.untaken], [['tail', 'end'], 0]);
  assert.deepEqual(carrier.marks.at(-1), { taken: 5, final: 0 });
});

test('a reader that takes what waits piece by piece is seen to take it, while the window opens only once nothing waits', () => {
  const { halves, time, carrier, told, user } = setUp();
  const onData = () => half.pause();
  const half = begun(new AgentEnd(halves), { told, carrier, user: { ...user, onData } });
  const consumed: number[] = [];
  carrier.consume = (bytes) => {
    consumed.push(bytes);
    return true;
  };
  half.pause();
  const piece = Buffer.alloc(100_000);
  for (let count = 1; count <= 3; count++) half.onData(piece);
  for (let count = 1; count <= 2; count++) {
    half.resume();
    time.run(time.now() + 250);
  }
  assert.deepEqual([carrier.marks, consumed], [[{ taken: 100_000 }, { taken: 200_000 }], []]);
  half.resume();
  assert.deepEqual([carrier.marks.at(-1), consumed], [{ taken: 300_000 }, [300_000]]);
});

test('it has finished once the other half has got everything, and is gone once both have said so', () => {
  const { half, told } = agentHalf();
  half.write(Buffer.from('bye'));
  half.finish();
  half.whenFinished(() => void told.push('finished'));
  half.onMark(encodeMark({ taken: 3 }));
  assert.deepEqual(told, []);
  half.onMark(encodeMark({ taken: 4 }));
  assert.deepEqual(told, ['finished']);
  half.onMark(encodeMark({ taken: 4, final: 0 }));
  half.onEnd();
  assert.deepEqual(told, ['finished', 'end', 'over: clean', 'gone']);
});

test('an end that is closed before both sides have ended aborts the tunnel', () => {
  const { half, carrier, told } = agentHalf();
  half.close();
  assert.deepEqual([carrier.told, told], [['abort it went away'], ['over: it went away', 'gone']]);
});

test('a tunnel that ended in good order while it was detached is not aborted', () => {
  const { half, carrier, told } = agentHalf();
  half.finish();
  half.onMark(encodeMark({ taken: 1 }));
  half.pause();
  half.onData(Buffer.from('tail'));
  half.onMark(encodeMark({ taken: 1, final: 4 }));
  carrier.lose(new Error('the link was lost'));
  half.resume();
  half.close();
  assert.deepEqual(told, ['tail', 'end', 'over: clean']);
  const next = new RecordingCarrier();
  half.attach({ number: 1, received: 0, taken: 1 }, () => next);
  assert.ok(
    next.marks.some(({ taken }) => taken === 5),
    JSON.stringify(next.told),
  );
});

test('an agent reads ahead of a carrier that takes nothing, and a gateway so far as one write waits', () => {
  for (const [{ half, carrier }, most] of [
    [agentHalf(), LIMIT],
    [gatewayHalf(), 128 * 1024],
  ] as const) {
    carrier.pending = 1;
    const chunk = Buffer.alloc(64 * 1024);
    while (half.write(chunk) && half.kept < 2 * LIMIT) {}
    assert.ok(half.kept >= most && half.kept <= most + 128 * 1024 + chunk.length, `${half.kept}`);
  }
});
