import assert from 'node:assert/strict';
import { test } from 'node:test';
import { memory } from '@isthmus/runtime';
import { DialAbort, DialError, planeEvents } from '@isthmus/tunnel';
import { noTracer } from '@isthmus/tunnel/testing';
import { hubAttach, hubDial } from './pipeline.ts';

test('a hub with hardly any memory refuses dials, which may go through another one', async (t) => {
  t.mock.getter(memory, 'limited', () => true);
  let reached = 0;
  const session = () => {
    reached++;
    return Promise.reject(new DialError('destination_unavailable', 'it is asked'));
  };
  const dial = hubDial({ observation: { events: planeEvents() }, manyTenants: true, hubId: 'h1', session });
  const named = { id: '0123456789abcdef', tenant: 'acme', destination: { host: 'h', port: 1 } };
  const asked = { ...named, deadline: 0, signal: new DialAbort() };
  const scarce = t.mock.getter(memory, 'scarce', () => true);
  await assert.rejects(dial({ ...asked }), {
    code: 'connection_limit_reached',
    retryable: true,
    message: /^hub h1: too little memory: /,
  });
  assert.equal(reached, 0);
  scarce.mock.restore();
  await assert.rejects(dial({ ...asked }), /it is asked/);
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
  const attach = hubAttach({ observation: { events: planeEvents() }, manyTenants: true, session });
  const claim = { number: 1, received: 0, taken: 0, secret: 'f'.repeat(32) };
  const named = { id: '0123456789abcdef', tenant: 'acme', destination: { host: 'h', port: 1 } };
  const asked = { ...named, session: 's1', halfAtPeer: false, claim, deadline: 0, signal: new DialAbort() };
  for (let n = 0; n < 100; n++) void attach({ ...asked });
  // Sixteen dials would.
  assert.equal(started, 4);
});
