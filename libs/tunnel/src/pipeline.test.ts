import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Dial } from './dial.ts';
import { DialError } from './errors.ts';
import type { DialOutcome } from './events.ts';
import { pipeline, type Stage, type WaitingDial } from './pipeline.ts';
import { behind, established, request, streamOf, unobserved } from './testing/index.ts';

/** Returns a gateway's Dial through hub and agent, and the outcomes that the gateway reports. */
function chain(inner: Dial): { dial: Dial; ended: DialOutcome[] } {
  const observation = unobserved();
  const ended: DialOutcome[] = [];
  observation.events.on('dial:end', (role, _dial, outcome) => {
    if (role === 'gateway') ended.push(outcome);
  });
  const agent = pipeline({ role: 'agent', open: inner, observation });
  const hub = pipeline({ role: 'hub', open: agent, observation });
  const dial = pipeline({ role: 'gateway', open: hub, observation });
  return { dial, ended };
}

test('hub and agent each add their own time to what the agent measured', async () => {
  const { dial, ended } = chain(async () => ({ ...established(), timing: { dnsMs: 1, connectMs: 2 } }));
  const { timing } = await dial(request);
  assert.deepEqual(ended[0]?.timing, timing);
  const { dnsMs, connectMs, agentMs = -1, hubMs = -1 } = timing;
  assert.deepEqual([dnsMs, connectMs], [1, 2]);
  assert.ok(agentMs >= 0 && hubMs >= agentMs);
});

test('a failure reports these times too', async () => {
  const error = new DialError('connection_timeout', 'dial tcp x:1: i/o timeout', { timing: { connectMs: 5000 } });
  const { dial, ended } = chain(() => Promise.reject(error));
  await assert.rejects(dial(request), error);
  const { connectMs, agentMs = -1, hubMs = -1 } = ended[0]?.timing ?? {};
  assert.equal(connectMs, 5000);
  assert.ok(agentMs >= 0 && hubMs >= agentMs);
});

test('a tracer that throws ends an established dial once, without a failure, and closes its tunnel', async () => {
  const { events, tracer } = unobserved();
  const ends: (DialError | undefined)[] = [];
  const fault = new Error('a bad tracer');
  const end = ({ error }: DialOutcome) => {
    ends.push(error);
    throw fault;
  };
  const throwing = { ...tracer, start: () => ({ traceparent: undefined, end }) };
  const answer = established();
  await assert.rejects(
    pipeline({ role: 'hub', open: async () => answer, observation: { events, tracer: throwing } })(request),
    fault,
  );
  assert.deepEqual(ends, [undefined]);
  assert.ok(streamOf(answer.end).destroyed);
});

/** A stage that notes what it is called with. */
function stage(name: string, told: string[], said?: ReturnType<Stage['enter']>): Stage & { waiting?: WaitingDial } {
  const noting: Stage & { waiting?: WaitingDial } = {
    name,
    enter(_dial, waiting) {
      noting.waiting = waiting;
      told.push(`${name} enters`);
      return said;
    },
    answered: () => void told.push(`${name} answered`),
    left: () => void told.push(`${name} left`),
  };
  return noting;
}

test('a dial passes the stages in order, and its answer the other way', async () => {
  const told: string[] = [];
  await behind([stage('one', told), stage('two', told)], async () => established())(request);
  const both = ['one enters', 'two enters', 'two answered', 'one answered', 'two left', 'one left'];
  assert.deepEqual(told, both);
});

test('a dial that a stage refuses reaches nothing behind it, and leaves those before', async () => {
  const told: string[] = [];
  const refused = new DialError('http_request_denied', 'no');
  const dial = behind([stage('one', told), stage('two', told, refused), stage('three', told)], () => assert.fail());
  await assert.rejects(dial(request), refused);
  assert.deepEqual(told, ['one enters', 'two enters', 'one left']);
});

test('a dial that waits goes on where it was, or fails there', async () => {
  for (const goesOn of [true, false]) {
    const told: string[] = [];
    const [waits, again] = [stage('waits', told, 'waits'), stage('again', told, 'waits')];
    const answer = established();
    const dialled = behind([stage('one', told), waits, again, stage('last', told)], async () => answer)(request);
    assert.deepEqual(told, ['one enters', 'waits enters']);
    waits.waiting?.goOn();
    if (goesOn) again.waiting?.goOn();
    else again.waiting?.fail(new DialError('connection_terminated', 'over'));
    if (goesOn) assert.equal(await dialled, answer);
    else await assert.rejects(dialled, { message: 'over' });
    assert.deepEqual(told.slice(goesOn ? -4 : -2), [
      ...(goesOn ? ['last left', 'again left'] : []),
      'waits left',
      'one left',
    ]);
  }
});

test('a defect in a stage fails the dial, and closes its tunnel', async () => {
  const told: string[] = [];
  const defect = () => {
    throw new TypeError('a defect');
  };
  const answer = established();
  const bad: Stage = { name: 'bad', enter: () => undefined, answered: defect };
  await assert.rejects(behind([stage('one', told), bad], async () => answer)(request), {
    code: 'proxy_internal_error',
  });
  assert.ok(streamOf(answer.end).destroyed);
  const worse: Stage = { name: 'worse', enter: defect };
  await assert.rejects(behind([stage('one', told), worse], () => assert.fail())(request), /a defect/);
  assert.deepEqual(told, ['one enters', 'one left', 'one enters', 'one left']);
});
