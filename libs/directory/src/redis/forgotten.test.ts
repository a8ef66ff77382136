import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import type { Registry } from '../registry.ts';
import { hubRecord, member, Observer, sessionRecord } from '../testing/observer.ts';
import { RedisPlane } from '../testing/redis-plane.ts';
import { type RedisServer, redisMissing, startRedis } from '../testing/redis-server.ts';

describe('a registry whose Redis forgets keys, or holds records that no hub wrote', { skip: redisMissing() }, () => {
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
    observer.stop();
    await plane.close();
  });

  const key = (suffix: string) => `{${plane.name}}:${suffix}`;

  /** Runs a script. Its text may hold no single quotes. */
  const script = async (lua: string) => {
    const answer = await server.command(`EVAL '${lua}' 0`);
    assert.doesNotMatch(answer, /^-/);
  };

  /** Adds an entry to the stream, as a hub would. @param lua makes its text */
  const publish = (lua: string) =>
    script(
      `
      local id = redis.call("HGET", "${key('meta')}", "epoch") .. "-" .. redis.call("HINCRBY", "${key('meta')}", "seq", 1)
      return redis.call("XADD", "${key('changes')}", id, "change", ${lua})`.replaceAll('\n', ' '),
    );

  const text = (record: unknown) => `[[${JSON.stringify(record)}]]`;

  it('writes each key again that Redis evicts', async () => {
    const agent = { tenant: 'default', agentId: 'a' };
    const registration = registry.register(hub);
    registration.announce(sessionRecord(hub, 's1'));
    registration.announce(sessionRecord(hub, 's2'));
    registry.join(member('m1'));
    await registry.quarantine(agent, 'leaks');
    const complete = async () => {
      const { hubs, sessions, quarantines } = await registry.snapshot();
      const members = await registry.members();
      return [hubs, sessions, quarantines, members].map(({ length }) => length).join() === '1,2,1,1';
    };
    await until(complete, 'a complete directory');
    for (const evicted of ['sessions:h1', 'hub:h1', 'hubs', 'meta', 'changes', 'quarantines', 'members']) {
      await observer.until('both sessions', () => observer.sessionIds.join() === 's1,s2');
      assert.equal(await server.command(`DEL ${key(evicted)}`), ':1', evicted);
      await until(complete, `a directory that is complete again without ${evicted}`);
      // A hub's news reach its followers, whatever was lost.
      registration.announce(sessionRecord(hub, evicted));
      await observer.until(`a session after ${evicted}`, () => observer.has(evicted));
      registration.withdraw(evicted, 2);
      await observer.until(`its end after ${evicted}`, () => !observer.has(evicted));
    }
    assert.ok(!observer.gone.includes('s1') && !observer.gone.includes('h1'), observer.gone.join());
  });

  it('forgets versions that the store forgot', async () => {
    const registration = registry.register(hub);
    registration.announce(sessionRecord(hub, 's1'));
    await observer.until('s1', () => observer.has('s1'));
    const false1 = sessionRecord(hub, 's1', 1e9, { agentId: 'false' });
    const falseHub = hubRecord('h2', 1e15);
    await publish(text({ kind: 'session', session: false1 }));
    await publish(text({ kind: 'hub', hub: falseHub }));
    await publish(text({ kind: 'session', session: sessionRecord(falseHub, 'false') }));
    await observer.until('the false records', () => observer.sessionIds.join() === 'false,s1');
    await server.command('FLUSHALL');
    const h2 = hubRecord('h2');
    registry.register(h2).announce(sessionRecord(h2, 's2'));
    await observer.until('what the hubs hold', () => observer.sessionIds.join() === 's1,s2');
    await observer.until('the true s1', () => observer.sessions[0]?.agentId === 'agent-of-s1');
    assert.equal(observer.hub('h2')?.incarnation, 1);
    registration.withdraw('s1', 2);
    await observer.until('its end', () => !observer.has('s1'));
  });

  it('skips records that are too long or malformed, names them, and follows on', async () => {
    const registration = registry.register(hub);
    registration.announce(sessionRecord(hub, 's1'));
    await observer.until('s1', () => observer.has('s1'));
    const deep = (n: number) => `string.rep("[", ${n}) .. string.rep("]", ${n})`;
    const large = JSON.stringify({ kind: 'session', session: sessionRecord(hub, 'large') }).slice(0, -2);
    await publish(`[[${large},"more":]] .. ${deep(1_000_000)} .. "}}"`);
    for (const malformed of ['{', 'null', '{"kind":"session"}', '{"kind":"hub","hub":1}', '{"kind":"quarantine"}'])
      await publish(`[[${malformed}]]`);
    await script(`redis.call("HSET", "${key('sessions:h1')}", "large", "1 " .. ${deep(1_000_000)}, "bad", "1 {")`);
    registry.join(member('m1'));
    await until(async () => (await registry.members()).length === 1, 'a member');
    const now = `redis.call("TIME")[1] .. "000 "`;
    await script(
      `redis.call("HSET", "${key('members')}", "large", ${now} .. ${deep(1_000_000)}, "bad", ${now} .. "{")`,
    );
    assert.deepEqual(
      (await registry.members()).map(({ memberId }) => memberId),
      ['m1'],
    );
    registration.announce(sessionRecord(hub, 's2'));
    await observer.until('s2', () => observer.has('s2'));
    assert.deepEqual(observer.sessionIds, ['s1', 's2']);
    assert.ok(
      observer.states.every(({ up }) => up),
      JSON.stringify(observer.states),
    );
    await observer.until('a word of it', () => observer.states.some(({ detail }) => /skipped/.test(detail)));
    const late = new Observer(plane.connect());
    await late.until('what is well-formed', () => late.sessionIds.join() === 's1,s2');
    late.stop();
  });
});
