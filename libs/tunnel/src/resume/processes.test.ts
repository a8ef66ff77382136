import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HungUp, SessionLost } from '../errors.ts';
import { AgentProcess, type AgentSession, GatewayProcesses, waitAfter } from './processes.ts';

const LOSS = new SessionLost('the link was lost');
const INSTANCE = 'f'.repeat(16);
const OTHER = 'e'.repeat(16);

/** The sessions of agent `a` that a gateway knows. */
class Known {
  readonly #sessions = new Map<string, AgentSession>();
  watcher: { came(session: AgentSession['record']): void; went(): void } | undefined;

  get size(): number {
    return this.#sessions.size;
  }

  ofAgent(): Iterable<AgentSession> {
    return this.#sessions.values();
  }

  open(sessionId: string, instance = INSTANCE): void {
    const record = { tenant: 'default', agentId: 'a', sessionId, hubId: sessionId, instance };
    this.#sessions.set(sessionId, { record, state: { draining: false } });
    this.watcher?.came(record);
  }

  forget(sessionId: string): void {
    if (this.#sessions.delete(sessionId)) this.watcher?.went();
  }
}

/** @param sessions that it has at first, each at a hub of its own */
function agent(...sessions: string[]) {
  const time = { ms: 5000 };
  const known = new Known();
  for (const sessionId of sessions) known.open(sessionId);
  const name = { tenant: 'default', agentId: 'a', instance: INSTANCE };
  const agent = new AgentProcess(name, known, { now: () => time.ms });
  known.watcher = { came: (session) => agent.came(session), went: () => agent.checkTunnels() };
  return {
    time,
    known,
    hangsUp: (sessionId: string) => agent.hungUp(sessionId),
    loses: (sessionId: string) => agent.lost(sessionId),
    comes: (sessionId: string, instance?: string) => known.open(sessionId, instance),
    end: () => agent.endAfter(LOSS)?.message,
  };
}

test('an agent that closes all its sessions in the same moment is dead', () => {
  const { time, known, hangsUp, end } = agent('s1', 's2', 's3');
  hangsUp('s1');
  hangsUp('s2');
  time.ms += 100;
  assert.equal(end(), undefined);
  hangsUp('s3');
  assert.equal(end(), 'agent a has closed all its connections');
  assert.equal(known.size, 0);
  time.ms += 10_000;
  assert.equal(end(), 'agent a has closed all its connections');
});

test('it is dead if it closed one in the moment in which the others were lost', () => {
  const { hangsUp, loses, end } = agent('s1', 's2');
  loses('s1');
  hangsUp('s2');
  assert.equal(end(), 'agent a has closed all its connections');
});

test('it may live if all were lost and it closed none', () => {
  const { loses, end } = agent('s1', 's2');
  loses('s1');
  loses('s2');
  assert.equal(end(), undefined);
});

test('it may live if they went one after the other', () => {
  const { time, hangsUp, end } = agent('s1', 's2');
  hangsUp('s1');
  time.ms += 501;
  hangsUp('s2');
  assert.equal(end(), undefined);
});

test('it may live if it had only one', () => {
  const { hangsUp, end } = agent('s1');
  hangsUp('s1');
  assert.equal(end(), undefined);
});

test('one that lost all its sessions soon after each other has a moment to come back', () => {
  for (const back of [true, false]) {
    const { time, hangsUp, comes, end } = agent('s1', 's2');
    hangsUp('s1');
    time.ms += 101;
    hangsUp('s2');
    time.ms += 1499;
    assert.equal(end(), undefined);
    if (back) comes('s1');
    time.ms += 1;
    assert.equal(end(), back ? undefined : 'agent a has closed all its connections');
  }
});

test('it lives if it comes back', () => {
  const { hangsUp, comes, end } = agent('s1', 's2');
  hangsUp('s1');
  hangsUp('s2');
  comes('s1');
  assert.equal(end(), undefined);
});

test('it is dead if another process comes in its place, however it went', () => {
  const { time, loses, comes, end } = agent('s1');
  loses('s1');
  time.ms += 3000;
  comes('s2', OTHER);
  assert.equal(end(), 'agent a has restarted');
});

test('it lives beside another process that came long before', () => {
  const { time, loses, comes, end } = agent('s1');
  comes('s2', OTHER);
  time.ms += 501;
  loses('s1');
  assert.equal(end(), undefined);
});

/** @param names of the links that there are */
function watching(...names: string[]) {
  const time = { ms: 0 };
  const dead: string[] = [];
  const gateways = new GatewayProcesses({ now: () => time.ms }, (gateway, afterMs) => {
    dead.push(afterMs === 0 ? gateway : `${gateway} after ${afterMs} ms`);
  });
  const links = new Map(names.map((name) => [name, {}]));
  for (const link of links.values()) gateways.came(link);
  const link = (name: string) => links.get(name) as object;
  return {
    time,
    dead,
    report: (name: string, gateway = 'g1', reset = false) => gateways.report({ gateway, reset }, link(name)),
    went: (name: string) => gateways.went(link(name)),
  };
}

test('a gateway is dead once every hub says that it hung up', () => {
  const { dead, report } = watching('h1', 'h2', 'h3');
  report('h1');
  report('h2');
  report('h2');
  report('h3', 'g2');
  assert.deepEqual(dead, []);
  report('h3');
  assert.deepEqual(dead, ['g1']);
});

test('it may live if only one hub can say so', () => {
  const { dead, report } = watching('h1');
  report('h1');
  assert.deepEqual(dead, []);
});

test('it may live if it hung up on one hub long before the other', () => {
  const { time, dead, report } = watching('h1', 'h2');
  report('h1');
  time.ms = 501;
  report('h2');
  assert.deepEqual(dead, []);
  report('h1');
  assert.deepEqual(dead, ['g1']);
});

test('one that hung up on its hubs soon after each other has a moment to come back', () => {
  const { time, dead, report } = watching('h1', 'h2');
  report('h1');
  time.ms = 101;
  report('h2');
  assert.deepEqual(dead, ['g1 after 1500 ms']);
});

test('a server that was gateway and hub counts by the link that went with it', () => {
  const { dead, report, went } = watching('own', 'other');
  report('other');
  went('own');
  assert.deepEqual(dead, []);
  report('own');
  assert.deepEqual(dead, ['g1']);
});

test('it may live if all its connections were reset on the way', () => {
  const { dead, report } = watching('h1', 'h2');
  report('h1', 'g1', true);
  report('h2', 'g1', true);
  assert.deepEqual(dead, []);
});

test('it is dead if it closed one, whatever became of the others', () => {
  const { dead, report } = watching('h1', 'h2', 'h3');
  report('h1', 'g1', true);
  report('h2');
  report('h3', 'g1', true);
  assert.deepEqual(dead, ['g1']);
});

test('a half waits less long if the other one seems to have closed its connection, and never longer than it may', () => {
  const [lost, hungUp] = [new SessionLost('lost'), new HungUp('closed')];
  assert.equal(waitAfter(lost, 120_000), 120_000);
  assert.equal(waitAfter(hungUp, 120_000), 5000);
  assert.equal(waitAfter(hungUp, 1000), 1000);
});
