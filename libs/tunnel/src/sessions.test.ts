import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SessionLost } from './errors.ts';
import { AgentProcess, type AgentSession } from './sessions.ts';

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
  time.ms += 400;
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
