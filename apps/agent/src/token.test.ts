import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FakeClock } from '@isthmus/runtime/testing';
import { TokenBucket } from '@isthmus/tunnel';
import { AGENT } from './defaults.ts';
import { AgentToken } from './token.ts';

/** A link whose hub accepts fresh tokens, of an agent that looks for them. */
function link(clock: FakeClock, read: () => string, send: () => void) {
  const token = new AgentToken(read, clock);
  const again = () => {
    clock.after(AGENT.tokenLookMs, () => {
      again();
      token.look();
    });
  };
  again();
  const { promise: closed, resolve: close } = Promise.withResolvers<Error>();
  return { taken: token.follow({ send, closed, destroy: close }, read()), close };
}

test('a link that cannot send a fresh token ends, and the others get theirs', async () => {
  let current = 'first';
  const token = new AgentToken(() => current);
  const follow = (send: () => void) => {
    const { promise: closed, resolve: destroy } = Promise.withResolvers<Error>();
    token.follow({ send, closed, destroy }, current);
    return closed;
  };
  const broken = follow(() => {
    throw new Error('a defect');
  });
  let sent = 0;
  follow(() => void sent++);
  current = 'second';
  token.look();
  assert.equal(sent, 1);
  assert.equal((await broken).message, 'a defect');
});

test('a token that the hub does not take is sent again, not before the hub looks at it, and not at once with others', async () => {
  const clock = new FakeClock();
  const sent: number[] = [];
  let token = 'first';
  const send = () => void sent.push(clock.now());
  const { taken, close } = link(clock, () => token, send);
  await clock.run(10_000);
  assert.equal(sent.length, 0);
  token = 'second';
  await clock.run(1_000_000);
  const pauses = sent.slice(1).map((at, index) => at - (sent[index] as number));
  assert.ok(pauses.length > 20 && Math.min(...pauses) > 20_000 && Math.max(...pauses) < 48_000, `${pauses}`);
  assert.ok(new Set(pauses).size > 5, `${pauses}`);
  taken();
  const { length } = sent;
  await clock.run(100_000);
  assert.equal(sent.length, length);
  token = 'third';
  close(new Error('test over'));
  await clock.run(100_000);
  assert.equal(sent.length, length);
});

/** A tenth of docs/LIMITS.md's 10,000 sessions and 200 renewals a second. */
test('sessions whose tokens change at once have all renewed within 100 s', async () => {
  const clock = new FakeClock();
  const bucket = new TokenBucket(clock.now);
  const rate = { perSecond: 20, atOnce: 20 };
  let renewed = 0;
  let token = 'first';
  for (let i = 0; i < 1000; i++) {
    const send = () => {
      if (!bucket.take(1, rate)) return;
      renewed++;
      taken();
    };
    // Links begin at any time.
    const { taken } = link(clock, () => token, send);
    await clock.run(2);
  }
  token = 'second';
  await clock.run(100_000);
  assert.equal(renewed, 1000);
});
