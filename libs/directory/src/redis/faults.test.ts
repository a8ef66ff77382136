import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { changed } from '@isthmus/runtime/testing';
import { DIRECTORY } from '../defaults.ts';
import type { Registry } from '../registry.ts';
import { heldBy, hubRecord, Observer, sessionRecord } from '../testing/observer.ts';
import { FAST, RedisPlane, timesOfSuite } from '../testing/redis-plane.ts';
import { type RedisServer, redisMissing, startRedis } from '../testing/redis-server.ts';
import { relayTo } from '../testing/tcp-relay.ts';

const skip = redisMissing();

describe('registry on a Redis that fails', { skip }, () => {
  timesOfSuite({ ...FAST, keptChanges: 100 });

  let server: RedisServer;
  let plane: RedisPlane;
  let registry: Registry;
  let observer: Observer;
  const hub = hubRecord('h1');

  before(async () => {
    server = await startRedis();
  });
  after(() => server.stop());

  beforeEach(async () => {
    plane = new RedisPlane(server);
    registry = plane.connect();
    observer = new Observer(plane.connect());
    await observer.until('a first snapshot', () => observer.snapshots === 1);
  });
  afterEach(async () => {
    server.resume();
    observer.stop();
    await plane.close();
  });

  const down = () => observer.until('down', () => observer.states.at(-1)?.up === false);
  const key = (suffix: string) => `{${plane.name}}:${suffix}`;

  /** Returns a watcher that knew one session before it lost Redis. */
  async function oneCutOff() {
    const link = await relayTo(server.port);
    const cutOff = new Observer(plane.connect({ url: link.url }));
    const registration = registry.register(hub);
    registration.announce(sessionRecord(hub, 's1'));
    await cutOff.until('s1', () => cutOff.has('s1'));
    link.cut();
    await cutOff.until('down', () => cutOff.states.at(-1)?.up === false);
    return { link, cutOff, registration };
  }

  it('resumes after a short cut without a new snapshot', async () => {
    const { link, cutOff, registration } = await oneCutOff();
    registration.announce(sessionRecord(hub, 's2'));
    await observer.until('s2', () => observer.has('s2'));
    link.restore();
    await cutOff.until('s2', () => cutOff.has('s2'));
    assert.equal(cutOff.snapshots, 1);
    cutOff.stop();
    await link.close();
  });

  it('takes a snapshot if the stream was trimmed past its position while it was cut off', async () => {
    const { link, cutOff, registration } = await oneCutOff();
    for (let n = 0; n < 500; n++) registration.announce(sessionRecord(hub, `many-${n}`));
    registration.withdraw('s1', 2);
    await observer.until('500 sessions', () => observer.sessions.length === 500 && !observer.has('s1'));
    link.restore();
    await cutOff.until('500 sessions', () => cutOff.sessions.length === 500);
    assert.equal(cutOff.snapshots, 2);
    assert.deepEqual(cutOff.sessionIds, observer.sessionIds);
    cutOff.stop();
    await link.close();
  });

  it('notices that only the stream was deleted', async () => {
    const registration = registry.register(hub);
    await observer.until('h1', () => observer.hubIds.length === 1);
    await server.command(`DEL ${key('changes')}`);
    registration.announce(sessionRecord(hub, 's1'));
    await observer.until('s1', () => observer.has('s1'));
  });

  it('recovers after FLUSHALL, and no watcher loses a hub or session meanwhile', async () => {
    const other = hubRecord('h2');
    const registration = registry.register(hub);
    registration.announce(sessionRecord(hub, 's1'));
    registry.register(other).announce(sessionRecord(other, 's2'));
    await observer.until('both', () => observer.sessions.length === 2);
    await server.command('FLUSHALL');
    const lengths: number[] = [];
    const record = observer.snapshot.bind(observer);
    observer.snapshot = (snapshot) => {
      const missing = record(snapshot);
      lengths.push(observer.sessions.length);
      return missing;
    };
    await observer.until('a snapshot', () => lengths.length > 0);
    registration.announce(sessionRecord(hub, 's3'));
    await observer.until('s3', () => observer.has('s3'));
    assert.ok(
      lengths.every((length) => length >= 2),
      `sessions after snapshots: ${lengths}`,
    );
    assert.deepEqual(observer.gone, []);
    const late = new Observer(plane.connect());
    await late.until('all three', () => late.sessionIds.join() === 's1,s2,s3');
    late.stop();
  });

  it('recovers after Redis was killed and came back empty', async () => {
    const registration = registry.register(hub);
    registration.announce(sessionRecord(hub, 's1'));
    registration.announce(sessionRecord(hub, 's2'));
    await observer.until('both', () => observer.sessions.length === 2);
    await server.kill();
    await down();
    registration.announce(sessionRecord(hub, 's3'));
    registration.withdraw('s1', 2);
    assert.deepEqual(observer.sessionIds, ['s1', 's2']);
    await server.restart();
    await observer.until('s2 and s3', () => observer.sessionIds.join() === 's2,s3');
    assert.deepEqual(observer.gone, ['s1']);
    assert.deepEqual((await heldBy(registry)).sessions.map(({ sessionId }) => sessionId).sort(), ['s2', 's3']);
  });

  it('recovers after Redis came back with an older dump', async () => {
    const registration = registry.register(hub);
    registration.announce(sessionRecord(hub, 's1'));
    await observer.until('s1', () => observer.has('s1'));
    await server.command('SAVE');
    registration.announce(sessionRecord(hub, 's2'));
    await observer.until('s2', () => observer.has('s2'));
    await server.restart();
    const late = new Observer(plane.connect());
    await late.until('s2', () => late.has('s2'));
    await observer.until('s2 after a new snapshot', () => observer.snapshots > 1 && observer.has('s2'));
    assert.ok(!observer.gone.includes('h1'));
    late.stop();
  });

  it('keeps its hubs when Redis hangs for longer than the lifetime of their records', async () => {
    const registration = registry.register(hub);
    registration.announce(sessionRecord(hub, 's1'));
    await observer.until('s1', () => observer.has('s1'));
    server.pause();
    const pausedAt = performance.now();
    await down();
    registration.announce(sessionRecord(hub, 's2'));
    await new Promise((resolve) => setTimeout(resolve, FAST.ttlMs + 200 - (performance.now() - pausedAt)));
    server.resume();
    await observer.until('s2', () => observer.has('s2'));
    assert.deepEqual(observer.sessionIds, ['s1', 's2']);
    assert.deepEqual(observer.gone, []);
  });

  it('reports a killed hub to every watcher, and cleans up after it', { timeout: 180_000 }, async () => {
    const link = await relayTo(server.port);
    const killed = plane.connect({ url: link.url }).register(hub);
    killed.announce(sessionRecord(hub, 's1'));
    const second = new Observer(plane.connect());
    await observer.until('s1', () => observer.has('s1'));
    await second.until('s1', () => second.has('s1'));
    link.cut();
    await observer.until('h1 gone', () => observer.hubIds.length === 0);
    await second.until('h1 gone', () => second.hubIds.length === 0);
    assert.deepEqual(observer.gone, ['h1', 's1']);
    assert.equal(await server.command(`EXISTS ${key('sessions:h1')} ${key('hub:h1')}`), ':0');
    assert.equal(await server.command(`HLEN ${key('hubs')}`), ':0');
    link.restore();
    await observer.until('s1 again, written anew by its hub', () => observer.has('s1'));
    await link.close();
  });

  it('writes nothing for a session that returns within the flap time', async () => {
    const registration = registry.register(hub);
    for (const id of ['flaps', 'leaves']) registration.announce(sessionRecord(hub, id));
    await observer.until('both', () => observer.sessions.length === 2);
    const before = Number((await server.command(`XLEN ${key('changes')}`)).slice(1));
    for (let version = 2; version < 20; version += 2) {
      registration.withdraw('flaps', version);
      registration.announce(sessionRecord(hub, 'flaps', version + 1));
    }
    registration.announce(sessionRecord(hub, 'short-lived'));
    registration.withdraw('short-lived', 2);
    registration.withdraw('leaves', 2);
    registration.drain();
    let early = false;
    // Both may come at once.
    await observer.until('draining', () => {
      early ||= observer.hub('h1')?.draining === true && observer.has('leaves');
      return observer.hub('h1')?.draining === true;
    });
    assert.ok(early, 'draining does not wait for the flap time');
    await observer.until('one left', () => !observer.has('leaves'));
    assert.equal(await server.command(`XLEN ${key('changes')}`), `:${before + 2}`);
    assert.deepEqual(observer.sessionIds, ['flaps']);
  });

  it('reports a session at once, without waiting for the next beat or the next look', async () => {
    using _times = changed(DIRECTORY, { beatMs: 600_000, ttlMs: 3_600_000, lookMs: 600_000 });
    const rare = new RedisPlane(server);
    const watcher = new Observer(rare.connect());
    const registration = rare.connect().register(hub);
    await watcher.until('h1', () => watcher.hubIds.length === 1);
    registration.announce(sessionRecord(hub, 's1'));
    await watcher.until('s1', () => watcher.has('s1'));
    watcher.stop();
    await rare.close();
  });

  it('reports that the registry is up once it has answered, without waiting for a change', async (context) => {
    using _times = changed(DIRECTORY, { lookMs: 600_000 });
    const rare = new RedisPlane(server);
    context.after(() => rare.close());
    const watcher = new Observer(rare.connect());
    context.after(() => watcher.stop());
    await watcher.until('up', () => watcher.states.length > 0);
    assert.deepEqual(watcher.states, [{ up: true, detail: 'following the directory' }]);
  });

  it('converges with 2 watchers, 2 hubs and 200 sessions each', async () => {
    const second = new Observer(plane.connect());
    const hubs = [hubRecord('h1'), hubRecord('h2')];
    const registrations = hubs.map((record) => plane.connect().register(record));
    for (let n = 0; n < 200; n++) {
      for (const [index, record] of hubs.entries()) {
        registrations[index]?.announce(sessionRecord(record, `${record.hubId}-${n}`));
      }
    }
    for (const each of [observer, second]) await each.until('400', () => each.sessions.length === 400);
    for (let n = 0; n < 200; n += 2) registrations[0]?.withdraw(`h1-${n}`, 2);
    for (const each of [observer, second]) await each.until('300', () => each.sessions.length === 300);
    assert.deepEqual(observer.sessionIds, second.sessionIds);
    assert.deepEqual((await heldBy(registry)).sessions.length, 300);
    second.stop();
  });

  it('never blocks or throws while Redis is down, and never shows its password', { timeout: 60_000 }, async () => {
    const url = 'redis://plane:hunter2@127.0.0.1:1/0';
    const states: string[] = [];
    const away = plane.connect({ url });
    const registration = away.register(hub, (up, detail) => states.push(`${up} ${detail}`));
    for (let n = 0; n < 1_000; n++) registration.announce(sessionRecord(hub, `s${n}`));
    for (let n = 0; n < 1_000; n++) registration.withdraw(`s${n}`, 2);
    const unseen = new Observer(away);
    await unseen.until('down', () => unseen.states.length > 0);
    const failure = await away.members().then(
      () => assert.fail('members of nothing'),
      (error: Error) => error,
    );
    assert.equal(failure.name, 'RegistryUnavailable');
    assert.match(failure.message, /^redis 127\.0\.0\.1:1: .*ECONNREFUSED/);
    await registration.close();
    assert.doesNotMatch(JSON.stringify([states, unseen.states, failure]), /hunter2/);
    assert.ok(states.length > 0 && states.every((state) => state.startsWith('false ')));
    unseen.stop();
  });

  it('reports a wrong password without showing it', async () => {
    await server.command('ACL SETUSER reader on >right ~* +@all');
    const url = `redis://reader:hunter2@127.0.0.1:${server.port}`;
    const refused = new Observer(plane.connect({ url }));
    await refused.until('down', () => refused.states.length > 0);
    assert.match(refused.states[0]?.detail ?? '', /WRONGPASS/);
    assert.doesNotMatch(JSON.stringify(refused.states), /hunter2/);
    refused.stop();
  });

  it('rejects invalid options without repeating the URL', () => {
    for (const url of [
      '',
      'localhost:6379',
      'http://u:hunter2@h',
      'redis://u:hunter2@h/x',
      'redis://:hunter2@',
      'redis://%zz:hunter2@h',
    ]) {
      assert.throws(
        () => plane.connect({ url }),
        (error: Error) => /^bad Redis URL/.test(error.message) && !error.message.includes('hunter2'),
      );
    }
    assert.throws(() => plane.connect({ plane: 'a{b}' }), /bad plane name/);
  });
});
