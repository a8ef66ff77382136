import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DialAbort, DialError, noTracer, planeEvents } from '@isthmus/tunnel';
import { hubAttach, hubStages } from './pipeline.ts';

function stages(manyTenants: boolean): string[] {
  const observation = { events: planeEvents(), tracer: noTracer };
  return hubStages({ observation, manyTenants, session: () => assert.fail() }).map(({ name }) => name);
}

/** Each stage, and why it comes behind the one before. */
const ORDER = [
  ['observe', 'first: what any stage refuses is a dial with an outcome, and its time is the whole time'],
  ['takeTurns', 'the wait is part of the time that this hub reports'],
  ['passOn', 'last: it answers with the stream'],
] as const;

test('a hub of tenants passes a dial through all stages, in this order', () => {
  assert.deepEqual(
    stages(true),
    ORDER.map(([name]) => name),
  );
});

test('a hub of one tenant lets no dial wait', () => {
  assert.deepEqual(stages(false), ['observe', 'passOn']);
});

test('an attach is traced, and is no dial to any event', async () => {
  const events = planeEvents();
  for (const name of ['dial:start', 'dial:end'] as const) events.on(name, () => assert.fail(name));
  const spans: string[] = [];
  const start: typeof noTracer.start = (name, asked) => {
    spans.push(name);
    return noTracer.start(name, asked);
  };
  const why = new DialError('destination_unavailable', 'no session s1 on hub h1', { retryable: true });
  const attach = hubAttach({
    observation: { events, tracer: { ...noTracer, start } },
    manyTenants: true,
    session: () => Promise.reject(why),
  });
  const claim = { number: 1, received: 0, taken: 0, secret: 'f'.repeat(32) };
  const named = { id: '0123456789abcdef', tenant: 'acme', destination: { host: 'h', port: 1 } };
  const asked = { ...named, session: 's1', halfAtPeer: false, claim, deadline: 0, signal: new DialAbort() };
  await assert.rejects(attach(asked), why);
  assert.deepEqual(spans, ['hub.attach']);
});

test('after the loss of a gateway or a hub, few of a tenant’s attaches start in one tick', async () => {
  let started = 0;
  const session = async () => {
    started++;
    return new Promise<never>(() => {});
  };
  const attach = hubAttach({ observation: { events: planeEvents(), tracer: noTracer }, manyTenants: true, session });
  const claim = { number: 1, received: 0, taken: 0, secret: 'f'.repeat(32) };
  const named = { id: '0123456789abcdef', tenant: 'acme', destination: { host: 'h', port: 1 } };
  const asked = { ...named, session: 's1', halfAtPeer: false, claim, deadline: 0, signal: new DialAbort() };
  for (let n = 0; n < 100; n++) void attach({ ...asked });
  // Sixteen dials would.
  assert.equal(started, 4);
});
