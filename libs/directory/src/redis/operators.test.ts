import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { until } from '@isthmus/runtime/testing';
import type { AgentName } from '@isthmus/tunnel';
import { DIRECTORY } from '../defaults.ts';
import type { Registry } from '../registry.ts';
import { member, Observer } from '../testing/observer.ts';
import { FAST, RedisPlane, UNHURRIED } from '../testing/redis-plane.ts';
import { type RedisServer, redisMissing, startRedis } from '../testing/redis-server.ts';
import { relayTo } from '../testing/tcp-relay.ts';

const skip = redisMissing();

describe('members and quarantines in a Redis that fails', { skip }, () => {
  let server: RedisServer;
  let plane: RedisPlane;
  let registry: Registry;
  let observer: Observer;

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
      (await registry.snapshot()).quarantines.map(({ reason }) => reason),
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
    const patient = plane.connect({ timings: UNHURRIED });
    await patient.snapshot();
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
    const patient = plane.connect({ timings: UNHURRIED });
    await until(async () => {
      const [dies, stays] = await patient.members();
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
