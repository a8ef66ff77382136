import assert from 'node:assert/strict';
import { afterEach, describe, mock, test } from 'node:test';
import { guarding } from '@isthmus/runtime';
import { Keepalive } from './keepalive.ts';

describe('keepalive', () => {
  afterEach(() => mock.timers.reset());

  /** In steps, since timers that begin within one would count from its end. */
  function pass(ms: number): void {
    for (let left = ms; left > 0; left -= 10_000) mock.timers.tick(10_000);
  }

  function watch(keepaliveMs: number) {
    mock.timers.enable({ apis: ['setTimeout'] });
    const said: string[] = [];
    const own = new Keepalive({
      keepaliveMs,
      ping: () => void said.push('ping'),
      dead: (error) => void said.push(error.message),
      guarded: guarding(assert.ifError),
    });
    return { own, said };
  }

  test('a peer that sends no SETTINGS is given up', () => {
    const { own, said } = watch(60_000);
    own.awaitGreeting();
    pass(10_000);
    assert.deepEqual(said, ['no SETTINGS within 10 s']);
  });

  test('a peer is pinged when it was silent, and given up when it stays so', () => {
    const { own, said } = watch(60_000);
    own.greeted();
    for (let i = 0; i < 10; i++) {
      pass(60_000);
      own.heard();
    }
    assert.deepEqual(said, []);
    pass(120_000);
    assert.deepEqual(said, ['ping']);
    own.heard();
    pass(20_000 + 60_000);
    assert.deepEqual(said, ['ping'], 'what came was answer enough');
    pass(60_000);
    assert.deepEqual(said, ['ping', 'ping']);
    pass(20_000);
    assert.deepEqual(said, ['ping', 'ping', 'silent for 20 s, even after a PING']);
  });

  test('a keepalive longer than a timer pings nobody, and one that is stopped neither', () => {
    const { own, said } = watch(2 ** 40);
    own.greeted();
    pass(1_000_000);
    own.stop();
    mock.timers.tick(2 ** 31);
    assert.deepEqual(said, []);
  });
});
