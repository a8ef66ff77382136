import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { DIRECTORY } from '../defaults.ts';
import { hubRecord, sessionRecord } from '../testing/observer.ts';
import { Outbox, type SessionWrite } from './outbox.ts';

const { flapMs: FLAP_MS, coalesceMs: COALESCE_MS } = DIRECTORY;
const LATE = 1_000_000;
const session = (version: number, more = {}) => sessionRecord(hubRecord('h1'), 's1', version, more);
const words = (writes: readonly SessionWrite[]) =>
  writes.map(({ sessionId, version, session: record }) => `${record ? 'put' : 'drop'} ${sessionId}@${version}`);

function written(version: number): Outbox {
  const outbox = new Outbox();
  outbox.announce(session(version), 0);
  outbox.settle(outbox.takeDue(COALESCE_MS, 10));
  return outbox;
}

describe('outbox', () => {
  it('hands out an announcement when it is due, and only once', () => {
    const outbox = new Outbox();
    outbox.announce(session(1), 0);
    outbox.announce(session(2), 10);
    assert.equal(outbox.nextDue(), COALESCE_MS);
    assert.deepEqual(outbox.takeDue(COALESCE_MS - 1, 10), []);
    assert.deepEqual(words(outbox.takeDue(COALESCE_MS, 10)), ['put s1@2']);
    assert.equal(outbox.nextDue(), undefined);
  });

  it('forgets a session that ended before it was written', () => {
    const outbox = new Outbox();
    outbox.announce(session(1), 0);
    outbox.withdraw('s1', 2, 5);
    assert.equal(outbox.nextDue(), undefined);
    assert.deepEqual(outbox.takeAll(), []);
  });

  it('delays a withdrawal, and cancels it if the session returns', () => {
    const outbox = written(1);
    outbox.withdraw('s1', 2, 100);
    assert.equal(outbox.nextDue(), 100 + FLAP_MS);
    outbox.announce(session(3), 200);
    assert.equal(outbox.nextDue(), undefined);
  });

  it('writes a returned session at once if it has changed', () => {
    const outbox = written(1);
    outbox.withdraw('s1', 2, 100);
    outbox.announce(session(3, { draining: true }), 200);
    assert.deepEqual(words(outbox.takeDue(200 + COALESCE_MS, 10)), ['put s1@3']);
  });

  it('ignores older versions', () => {
    const outbox = written(5);
    outbox.announce(session(4, { draining: true }), 100);
    outbox.withdraw('s1', 4, 100);
    assert.equal(outbox.nextDue(), undefined);
  });

  it('writes a session that returned while its withdrawal was being written', () => {
    const outbox = written(1);
    outbox.withdraw('s1', 2, 0);
    const onItsWay = outbox.takeDue(LATE, 10);
    outbox.announce(session(3), LATE);
    outbox.settle(onItsWay);
    assert.deepEqual(words(outbox.takeDue(2 * LATE, 10)), ['put s1@3']);
  });

  it('withdraws a session whose announcement is being written or may be lost', () => {
    const outbox = new Outbox();
    outbox.announce(session(1), 0);
    const onItsWay = outbox.takeDue(COALESCE_MS, 10);
    outbox.withdraw('s1', 2, 30);
    outbox.retry(onItsWay, 40);
    assert.deepEqual(words(outbox.takeDue(30 + FLAP_MS, 10)), ['drop s1@2']);
  });

  it('repeats failed writes', () => {
    const outbox = new Outbox();
    outbox.announce(session(1), 0);
    outbox.retry(outbox.takeDue(COALESCE_MS, 10), 50);
    assert.deepEqual(words(outbox.takeDue(50, 10)), ['put s1@1']);
  });

  it('hands out only live sessions when everything is written again', () => {
    const outbox = written(1);
    outbox.announce(sessionRecord(hubRecord('h1'), 's2'), 0);
    outbox.withdraw('s1', 2, 0);
    assert.deepEqual(words(outbox.takeAll()), ['put s2@1']);
    assert.equal(outbox.nextDue(), undefined);
  });

  it('hands out no more than the limit', () => {
    const outbox = new Outbox();
    for (let n = 0; n < 5; n++) outbox.announce(sessionRecord(hubRecord('h1'), `s${n}`), 0);
    assert.equal(outbox.takeDue(LATE, 3).length, 3);
    assert.equal(outbox.takeDue(LATE, 3).length, 2);
  });
});
