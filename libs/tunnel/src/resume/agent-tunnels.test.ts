import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SharedBudget } from '@isthmus/runtime';
import type { EndUser } from '../end.ts';
import { SessionLost } from '../errors.ts';
import { RecordingCarrier } from '../testing/index.ts';
import { AgentTunnels } from './agent-tunnels.ts';
import { type AttachAnswer, AttachRefused, encodeMark, type ResumeTicket } from './carrier.ts';

const DIALLED = { tenant: 'acme', destination: { host: 'db.svc', port: 5432 }, callerName: 'ci' };

/** An agent with a tunnel of tenant acme. */
function agent() {
  const time = { ms: 0 };
  let timers: { at: number; run: () => void }[] = [];
  const after = (ms: number, run: () => void) => {
    const timer = { at: time.ms + ms, run };
    timers.push(timer);
    return () => {
      timers = timers.filter((other) => other !== timer);
    };
  };
  const passes = (ms: number) => {
    time.ms += ms;
    const due = timers.filter(({ at }) => at <= time.ms);
    timers = timers.filter((timer) => !due.includes(timer));
    for (const { run } of due) run();
  };
  const clock = { now: () => time.ms, random: () => 0.5, after };
  const tunnels = new AgentTunnels({ timeoutMs: 15_000, budget: new SharedBudget(0) }, clock);
  const first = new RecordingCarrier();
  let ticket: ResumeTicket | undefined;
  const end = tunnels.begin({ ...DIALLED, resumeOffer: { halfAtPeer: false, gatewayInstance: 'g1' } }, (given) => {
    ticket = given;
    return first;
  });
  const { secret } = ticket as unknown as ResumeTicket;
  const told: string[] = [];
  const user: EndUser = {
    onData: (bytes) => void told.push(String(bytes)),
    onDrain() {},
    onEnd() {},
    onClose: (failure) => void told.push(`over: ${failure?.message}`),
  };
  end.use(user, DIALLED.tenant);
  let number = 0;
  const attach = (over: { secret?: string; received?: number; taken?: number } = {}, named: object = {}) => {
    const next = new RecordingCarrier();
    let answer: AttachAnswer | undefined;
    tunnels.attach(
      { ...DIALLED, ...named, claim: { number: ++number, received: 0, taken: 0, secret, ...over } },
      (sent) => {
        answer = sent;
        return next;
      },
    );
    return { told: next.told, answer, carrier: next };
  };
  const write = (text: string) => void end.write(Buffer.from(text));
  return { time, passes, tunnels, end, first, secret, attach, told, write };
}

const refused = (final: boolean, message: RegExp) => (error: unknown) =>
  error instanceof AttachRefused && error.final === final && message.test(error.message);

test('an attach needs the secret of its tunnel, and the tenant, caller and destination of its dial, and learns nothing without them', () => {
  const { attach, secret, first, told, write } = agent();
  write('hello');
  const flipped = secret.slice(0, -1) + (secret.endsWith('0') ? '1' : '0');
  const others = [
    { tenant: 'other' },
    { callerName: 'other' },
    { callerName: undefined },
    { destination: { host: 'db.svc', port: 5433 } },
    { destination: { host: 'other.svc', port: 5432 } },
  ];
  for (const [over, named] of [
    [{ secret: flipped }, {}],
    [{ secret: 'f'.repeat(32) }, {}],
    ...others.map((named) => [{}, named] as const),
  ] as const)
    assert.throws(() => attach(over, named), refused(true, /^this agent has no such tunnel$/));
  assert.deepEqual(first.told, ['data hello']);
  // The true tunnel goes on.
  first.half?.onData(Buffer.from('back'));
  assert.deepEqual(told, ['back']);
});

test('an attach that claims more than was sent changes nothing, and one that is true goes on from there', () => {
  const { attach, first, write } = agent();
  write('hello');
  for (const over of [{ received: 6 }, { taken: 6 }]) assert.throws(() => attach(over), refused(true, /in disorder/));
  assert.deepEqual(first.told, ['data hello']);
  const { told, answer } = attach({ received: 3 });
  assert.deepEqual([first.told.at(-1), told, answer?.from], ['drop', ['data lo'], 3]);
});

test('an agent reads ahead of a carrier that takes nothing, or that is lost, as far as the tunnel may keep', () => {
  for (const lost of [false, true]) {
    const { tunnels, first, end } = agent();
    const chunk = Buffer.alloc(64 * 1024);
    first.pending = 1;
    if (lost) first.lose(new SessionLost('gone'));
    let writes = 0;
    while (writes < 20 && end.write(chunk)) writes++;
    assert.deepEqual([tunnels.kept, writes], [320 * 1024, 4]);
    assert.deepEqual(first.marks, [], 'nothing is asked of the other half before it has left');
  }
});

test('attaches of one tunnel are bounded, and the tunnel goes on', () => {
  const { attach, time, told } = agent();
  let accepted = 0;
  const flood = () => {
    for (let count = 0; count < 1000; count++) {
      try {
        attach();
        accepted++;
      } catch (error) {
        assert.ok(refused(false, /more than 5 attaches a second/)(error));
      }
    }
  };
  flood();
  assert.equal(accepted, 10);
  time.ms += 1000;
  flood();
  assert.equal(accepted, 15);
  assert.deepEqual(told, []);
});

test('a tunnel that has ended is not known any more', () => {
  const { attach, tunnels, end, first } = agent();
  assert.equal(tunnels.size, 1);
  end.abort(new Error('the destination failed'));
  assert.deepEqual([tunnels.size, first.told], [0, ['abort the destination failed']]);
  assert.throws(() => attach(), refused(true, /no such tunnel/));
});

test('a tunnel whose dial cannot be answered is none', () => {
  const { tunnels } = agent();
  const answer = () => {
    throw new TypeError('a header field may not hold it');
  };
  assert.throws(() => tunnels.begin(DIALLED, answer), TypeError);
  assert.equal(tunnels.size, 1);
});

/** How the gateway's connections end. */
const CLOSED = { gateway: 'g1', reset: false };

test('the tunnels of a gateway end when all hubs say that it hung up, and nobody else does', () => {
  const { tunnels, told, first } = agent();
  const links = [{}, {}] as const;
  for (const link of links) tunnels.linked(link);
  for (const link of links) tunnels.hungUp({ gateway: 'another', reset: false }, link);
  tunnels.hungUp(CLOSED, links[0]);
  assert.equal(tunnels.size, 1);
  tunnels.hungUp(CLOSED, links[1]);
  assert.deepEqual(told, ['over: the gateway has closed all its connections']);
  assert.equal(tunnels.size, 0);
  assert.equal(first.told.at(-1), 'abort the gateway has closed all its connections');
});

test('a link that its own gateway has closed counts as that gateway hanging up', () => {
  const { tunnels } = agent();
  const links = [{}, {}] as const;
  for (const link of links) tunnels.linked(link);
  tunnels.hungUp(CLOSED, links[0]);
  tunnels.unlinked(links[1], CLOSED);
  assert.equal(tunnels.size, 0);
});

test('a gateway that lost its hubs soon after each other goes on with its tunnels if it is back in time', () => {
  for (const back of [true, false]) {
    const { tunnels, told, first, passes, attach, write } = agent();
    const links = [{}, {}] as const;
    for (const link of links) tunnels.linked(link);
    write('hello');
    first.lose(new SessionLost('the way was lost'));
    tunnels.hungUp(CLOSED, links[0]);
    passes(400);
    tunnels.hungUp(CLOSED, links[1]);
    passes(1400);
    if (back) {
      const { carrier } = attach();
      assert.deepEqual(carrier.told, ['data hello']);
      carrier.half?.onMark(encodeMark({ taken: 5 }));
    }
    passes(10_000);
    assert.deepEqual([tunnels.size, told], back ? [1, []] : [0, ['over: the gateway has closed all its connections']]);
  }
});
