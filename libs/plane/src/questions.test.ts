import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import type { Ask, Question } from '@isthmus/tunnel';
import { Questions } from './questions.ts';

const never = new AbortController().signal;

function questionTo(to: Question['to'], reads = true): Question {
  return { to, method: 'GetStatus', message: {}, reads, operator: { identity: 'alice', remote: '10.0.0.1' } };
}

/** Says who answers, and whether the question was passed on. */
function says(name: string): Ask {
  return async function* ({ passed = false }) {
    yield `${name} ${passed}`;
    yield 'end';
  };
}

function fails(text: string): Ask {
  return () => {
    throw new Error(text);
  };
}

/** @param hubs of agent-1 of tenant acme */
function questions(links: Readonly<Record<string, Ask>>, hubs: readonly string[] = []): Questions {
  const sessions = hubs.map((hubId) => ({ record: { hubId } }));
  const ofAgent = ({ tenant, agentId }: { tenant: string; agentId: string }) =>
    tenant === 'acme' && agentId === 'agent-1' ? sessions : [];
  const made = new Questions('gw', { ofAgent } as unknown as ConstructorParameters<typeof Questions>[1]);
  made.link({
    direct: (to) => links['member' in to ? to.member : `${to.tenant}/${to.agent}`],
    neighbours: () => Object.keys(links),
  });
  return made;
}

async function all(answers: AsyncIterable<unknown>): Promise<unknown[]> {
  const found: unknown[] = [];
  for await (const answer of answers) found.push(answer);
  return found;
}

test('this process answers for itself, once it can', async () => {
  const own = questions({});
  assert.throws(() => own.ask(questionTo({ member: 'gw' }), never), /it is starting/);
  own.serve(says('gw'));
  assert.deepEqual(await all(own.ask(questionTo({ member: 'gw' }), never)), ['gw false', 'end']);
  assert.deepEqual(await all(own.answer(questionTo({ member: 'gw' }), never)), ['gw true', 'end']);
});

test('a process with a link is asked over it, any other through those that have links', async () => {
  const own = questions({ 'hub-1': fails('hub-1 has no link to gw-2'), 'hub-2': says('hub-2') });
  assert.deepEqual(await all(own.ask(questionTo({ member: 'hub-2' }), never)), ['hub-2 false', 'end']);
  assert.deepEqual(await all(own.ask(questionTo({ member: 'gw-2' }), never)), ['hub-2 false', 'end']);
});

test('a question that came over a link is not passed on', () => {
  const own = questions({ 'hub-1': says('hub-1') });
  assert.throws(() => own.answer(questionTo({ member: 'gw-2' }), never), /^Error: gw has no link to gw-2$/);
});

test('an agent is asked through its hubs, and a failure has the last reason', async () => {
  const own = questions({ 'hub-1': says('hub-1'), 'hub-2': says('hub-2') }, ['hub-2']);
  const agent = { tenant: 'acme', agent: 'agent-1' };
  assert.deepEqual(await all(own.ask(questionTo(agent), never)), ['hub-2 false', 'end']);
  const none = all(own.ask(questionTo({ ...agent, agent: 'agent-2' }), never));
  await assert.rejects(none, /^Error: gw has no link to agent agent-2 of tenant acme$/);
  const broken = questions({ 'hub-1': fails('one'), 'hub-2': fails('two') });
  await assert.rejects(all(broken.ask(questionTo({ member: 'gw-2' }), never)), /^Error: two$/);
});

test('a hub asks an agent of another hub through a gateway, which passes the question on once', async () => {
  const agent = { tenant: 'acme', agent: 'agent-1' };
  const hub = questions({ 'gw-1': says('gw-1') }, ['hub-9']);
  assert.deepEqual(await all(hub.ask(questionTo(agent), never)), ['gw-1 false', 'end']);
  const gateway = questions({ 'hub-2': says('hub-2') }, ['hub-2']);
  assert.deepEqual(await all(gateway.answer(questionTo(agent), never)), ['hub-2 true', 'end']);
  assert.throws(
    () => gateway.answer({ ...questionTo(agent), passed: true }, never),
    /^Error: gw has no link to agent agent-1 of tenant acme$/,
  );
});

test('beside a neighbour that hangs the next one is asked what changes nothing, and the first is given up', async (context) => {
  const asked = Promise.withResolvers<void>();
  let given = false;
  const hangs: Ask = async function* (_question, signal) {
    asked.resolve();
    await once(signal, 'abort');
    given = true;
    yield* [];
  };
  context.mock.timers.enable({ apis: ['setTimeout'] });
  const own = questions({ 'hub-1': hangs, 'hub-2': says('hub-2') });
  const answer = all(own.ask(questionTo({ member: 'gw-2' }), never));
  await asked.promise;
  context.mock.timers.tick(300);
  assert.deepEqual(await answer, ['hub-2 false', 'end']);
  assert.ok(given);

  const gone = new AbortController();
  const drain = all(own.ask(questionTo({ member: 'gw-2' }, false), gone.signal));
  context.mock.timers.tick(60_000);
  gone.abort();
  assert.deepEqual(await drain, []);
});
