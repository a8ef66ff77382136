import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { changed, until } from '@isthmus/runtime/testing';
import type { AgentName } from '@isthmus/tunnel';
import { DIRECTORY } from '../defaults.ts';
import type { Registry } from '../registry.ts';
import { heldBy, hubRecord, member, Observer, sessionRecord } from '../testing/observer.ts';
import { FAST, RedisPlane, timesOfSuite, UNHURRIED } from '../testing/redis-plane.ts';
import { type RedisServer, redisMissing, startRedis } from '../testing/redis-server.ts';
import { relayTo } from '../testing/tcp-relay.ts';

describe('a registry whose Redis fails, forgets keys, or holds records that no hub wrote', {
  skip: redisMissing(),
}, () => {
  timesOfSuite(FAST);

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
      const { hubs, sessions, quarantines } = await heldBy(registry);
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
    const timeless = JSON.stringify({ kind: 'session', session: { ...sessionRecord(hub, 'timeless'), since: 1e300 } });
    const wrong = ['{', 'null', '{"kind":"session"}', '{"kind":"hub","hub":1}', '{"kind":"quarantine"}', timeless];
    for (const malformed of wrong) await publish(`[[${malformed}]]`);
    await script(`redis.call("HSET", "${key('sessions:h1')}", "large", "1 " .. ${deep(1_000_000)}, "bad", "1 {")`);
    registry.join(member('m1'));
    await until(async () => (await registry.members()).length === 1, 'a member');
    const timelessMember = JSON.stringify(member('timeless', { since: 1.5 }));
    const now = `redis.call("TIME")[1] .. "000 "`;
    await script(
      `redis.call("HSET", "${key('members')}", "large", ${now} .. ${deep(1_000_000)}, "bad", ${now} .. "{", "timeless", ${now} .. [[${timelessMember}]])`,
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

  it('keeps quarantines and releases when Redis comes back empty or with an older dump', async () => {
    const agents = ['before', 'after', 'out'].map((agentId) => ({ tenant: 'default', agentId }));
    const [before, afterwards, out] = agents as [AgentName, AgentName, AgentName];
    for (const agent of [before, out]) await registry.quarantine(agent, 'leaks');
    await server.command('SAVE');
    await registry.quarantine(afterwards, 'leaks');
    await registry.quarantine(out, undefined);
    const known = { before: 'leaks', after: 'leaks' };
    const told = async (who: Observer) =>
      until(
        async () => isDeepStrictEqual(who.quarantined, known),
        () => JSON.stringify(who.quarantined),
      );
    await told(observer);
    for (const fault of [() => server.restart(), () => server.command('FLUSHALL')]) {
      const { snapshots } = observer;
      await fault();
      await observer.until('a new snapshot', () => observer.snapshots > snapshots);
      await told(observer);
      await until(
        async () => (await server.command(`HLEN ${key('quarantines')}`)) === ':3',
        'three quarantines that were written again',
      );
      const late = new Observer(plane.connect());
      await told(late);
      late.stop();
    }
  });

  it('does not restore the quarantine of an agent that was released while a watcher was cut off from an emptied store', async () => {
    const link = await relayTo(server.port);
    const cutOff = new Observer(plane.connect({ url: link.url }));
    const agent = { tenant: 'default', agentId: 'a' };
    await registry.quarantine(agent, 'leaks');
    for (const each of [observer, cutOff]) await each.until('quarantine', () => each.quarantined.a === 'leaks');
    link.cut();
    await cutOff.until('down', () => cutOff.states.at(-1)?.up === false);
    await server.command('FLUSHALL');
    await until(
      async () => (await server.command(`HLEN ${key('quarantines')}`)) === ':1',
      'the quarantine that was written again',
    );
    await registry.quarantine(agent, undefined);
    link.restore();
    await cutOff.until('its end', () => cutOff.snapshots === 2 && !('a' in cutOff.quarantined));
    await cutOff.until('two looks', () => cutOff.answers > 2);
    assert.deepEqual(
      (await heldBy(registry)).quarantines.map(({ reason }) => reason),
      [undefined],
    );
    cutOff.stop();
    await link.close();
  });

  it('keeps following when it may not write back what an emptied store lost', async () => {
    await server.command('ACL SETUSER reader on >word ~* +@all -hset');
    const reader = new Observer(plane.connect({ url: server.url.replace('//', '//reader:word@') }));
    const [lost, said] = ['lost', 'said'].map((agentId) => ({ tenant: 'default', agentId })) as [AgentName, AgentName];
    await registry.quarantine(lost, 'leaks');
    for (const each of [observer, reader]) await each.until('quarantine', () => each.quarantined.lost === 'leaks');
    // Otherwise the other watcher would write it back.
    observer.stop();
    await server.command('FLUSHALL');
    await reader.until('a refusal', () =>
      reader.states.some(({ detail }) => /cannot restore quarantines/.test(detail)),
    );
    await registry.quarantine(said, 'leaks');
    await reader.until('news', () => reader.quarantined.said === 'leaks');
    assert.equal(reader.quarantined.lost, 'leaks');
    await server.command('ACL SETUSER reader +hset');
    await until(
      async () => (await server.command(`HLEN ${key('quarantines')}`)) === ':2',
      'the quarantine that was refused before',
    );
    reader.stop();
  });

  it('keeps a bounded number of agents in quarantine, and remembers a bounded number of released ones', async () => {
    // On a busy machine, a thousand writes in a row wait for each other.
    using _times = changed(DIRECTORY, UNHURRIED);
    const patient = plane.connect();
    const all = Array.from({ length: DIRECTORY.quarantined }, (_, n) => ({ tenant: 'default', agentId: `agent-${n}` }));
    const everyone = async (reason: string | undefined) => {
      for (let start = 0; start < all.length; start += 50) {
        await Promise.all(all.slice(start, start + 50).map((agent) => patient.quarantine(agent, reason)));
      }
    };
    await everyone('leaks');
    const another = { tenant: 'default', agentId: 'another' };
    await assert.rejects(patient.quarantine(another, ''), {
      name: 'QuarantineFull',
      message: /Lift one first: isthmus quarantine AGENT --lift$/,
    });
    const others = { tenant: 'default"2', agentId: 'another' };
    assert.equal(await patient.quarantine(others, 'leaks'), true);
    assert.equal(await patient.quarantine(others, undefined), true);
    assert.equal(await patient.quarantine(all[0] as AgentName, 'another reason'), true);
    await everyone(undefined);
    assert.equal(await patient.quarantine(another, ''), true);
    assert.equal(await patient.quarantine(another, undefined), true);
    assert.equal(await server.command(`HLEN ${key('quarantines')}`), `:${DIRECTORY.quarantined}`);
    await observer.until('nobody in quarantine', () => Object.keys(observer.quarantined).length === 0);
  });

  it('lists a member until it has been silent for too long, and removes its entry when the next member joins', async () => {
    const link = await relayTo(server.port);
    const lists = (ids: string) =>
      until(async () => (await registry.members()).map(({ memberId }) => memberId).join() === ids, `members ${ids}`);
    plane.connect({ url: link.url }).join(member('dies'));
    registry.join(member('stays'));
    await lists('dies,stays');
    link.cut();
    await until(async () => {
      using _times = changed(DIRECTORY, UNHURRIED);
      const [dies, stays] = await registry.members();
      return dies && stays && dies.quietMs > FAST.memberTtlMs && stays.quietMs < dies.quietMs;
    }, 'how long one was silent');
    await lists('stays');
    assert.equal(await server.command(`HLEN ${key('members')}`), ':2');
    registry.join(member('starts'));
    await lists('starts,stays');
    assert.equal(await server.command(`HLEN ${key('members')}`), ':2');
    await link.close();
  });

  it('lists all members again after Redis came back empty', async () => {
    registry.join(member('a'));
    plane.connect().join(member('b'));
    const both = () => until(async () => (await registry.members()).length === 2, 'both members');
    await both();
    await server.command('FLUSHALL');
    await both();
    await server.kill();
    await assert.rejects(registry.members(), { name: 'RegistryUnavailable' });
    await server.restart();
    await until(
      () =>
        registry.members().then(
          ({ length }) => length === 2,
          () => false,
        ),
      'both members',
    );
  });
});
