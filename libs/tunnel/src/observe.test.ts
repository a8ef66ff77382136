import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Dial } from './dial.ts';
import { DialError } from './errors.ts';
import type { DialOutcome } from './events.ts';
import { observed } from './observe.ts';
import { established, request, unobserved } from './testing/index.ts';

/** Returns a gateway's Dial through hub and agent, and the outcomes that the gateway reports. */
function chain(inner: Dial): { dial: Dial; ended: DialOutcome[] } {
  const observation = unobserved();
  const ended: DialOutcome[] = [];
  observation.events.on('dial:end', (role, _dial, outcome) => {
    if (role === 'gateway') ended.push(outcome);
  });
  const dial = observed('gateway', observed('hub', observed('agent', inner, observation), observation), observation);
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
  await assert.rejects(observed('hub', async () => answer, { events, tracer: throwing })(request), fault);
  assert.deepEqual(ends, [undefined]);
  assert.ok(answer.end.stream.destroyed);
});
