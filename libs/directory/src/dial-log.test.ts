import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as tick } from 'node:timers/promises';
import {
  Deadlines,
  type Dial,
  DialError,
  type DialOutcome,
  type DialRequest,
  type DialTracer,
  dialLog,
  pipeline,
  planeEvents,
} from '@isthmus/tunnel';
import { established, noTracer, request, unobserved } from '@isthmus/tunnel/testing';
import { routed } from './attempts.ts';
import { join, plane, silent, stoppedTime } from './testing/routing.ts';

test('a dial records each attempt: its session, its cause and its outcome', async (t) => {
  const pass = stoppedTime(t);
  const events = planeEvents();
  const observation = { events };
  const ended: DialOutcome[] = [];
  const dials: DialRequest[] = [];
  events.on('dial:end', (_role, dial, outcome) => {
    dials.push(dial);
    ended.push(outcome);
  });
  const lost = new DialError('connection_terminated', 'gone', { retryable: true });
  const seen: DialRequest[] = [];
  const ways = [() => Promise.reject(lost), silent(seen), async () => established()];
  let turn = 0;
  const options = { strategies: ['default'], zone: '', parkTimeout: 0, observation } as const;
  const route = routed({ ...options, directory: plane('h1', 'h2', 'h3'), nextHop: () => ({ dial: way }) });
  const way = (dial: DialRequest) => (ways[turn++] as (typeof ways)[0])(dial);
  const dial = { ...request, log: dialLog() };
  const dialled = pipeline({ role: 'gateway', open: route, observation })(dial);
  await new Promise(setImmediate);
  pass(300);
  await dialled;
  assert.deepEqual(
    dial.log.attempts.map(({ kind, outcome, error }) => [kind, outcome, error]),
    [
      ['first', 'failed', lost],
      ['retry', 'overtaken', undefined],
      ['hedge', 'established', undefined],
    ],
  );
  for (const { ms } of dial.log.attempts) assert.ok(ms !== undefined && ms >= 0);
  assert.equal(new Set(dial.log.attempts.map(({ sessionId }) => sessionId)).size, 3);
  assert.equal(dials[0], dial, 'the caller and the event see one dial');
  assert.equal(ended[0]?.error, undefined);
});

test('a dial reports when it starts and stops waiting for a session, and how long it waited', async (t) => {
  const pass = stoppedTime(t);
  const observation = unobserved();
  const told: string[] = [];
  observation.events.on('dial:park', ({ id }) => told.push(`park ${id}`));
  observation.events.on('dial:unpark', ({ id }) => told.push(`unpark ${id}`));
  const directory = plane();
  const options = { strategies: ['default'], zone: '', parkTimeout: 60_000, observation } as const;
  const route = routed({ ...options, directory, nextHop: () => ({ dial: async () => established() }) });
  const dial = { ...request, log: dialLog() };
  const dialled = pipeline({ role: 'gateway', open: route, observation })(dial);
  assert.deepEqual(told, [`park ${request.id}`]);
  pass(5);
  join(directory, 'h1');
  await dialled;
  assert.deepEqual(told, [`park ${request.id}`, `unpark ${request.id}`]);
  assert.equal(dial.log.parkedMs, 5);
});

test('an attempt whose caller gave up has no error; one that failed before keeps its error', async () => {
  const observation = unobserved();
  const ended: [DialRequest, DialOutcome][] = [];
  observation.events.on('dial:end', (_role, dial, outcome) => ended.push([dial, outcome]));
  const caller = new AbortController();
  const lost = new DialError('connection_terminated', 'gone', { retryable: true });
  const given = new DialError('connection_terminated', 'the caller went away');
  const waits: Dial = ({ signal }) =>
    new Promise((_resolve, reject) => {
      signal.addEventListener('abort', () => reject(given));
      caller.abort();
    });
  const ways = [() => Promise.reject(lost), waits];
  const hub: Dial = (dial) => (ways.shift() as Dial)(dial);
  const options = { strategies: ['default'], zone: '', parkTimeout: 0, observation } as const;
  const route = routed({ ...options, directory: plane('h1', 'h2'), nextHop: () => ({ dial: hub }) });
  await assert.rejects(
    pipeline({ role: 'gateway', open: route, observation })({ ...request, log: dialLog(), signal: caller.signal }),
    given,
  );
  const [[dial, outcome] = []] = ended;
  assert.deepEqual(
    dial?.log?.attempts.map(({ outcome, error }) => [outcome, error]),
    [
      ['failed', lost],
      ['overtaken', undefined],
    ],
  );
  assert.equal(outcome?.failure, 'abandoned');
});

/** Builds contexts that spell the path to the span: `caller/dial/1`. */
function pathTracer(told: string[]): DialTracer {
  return {
    ...noTracer,
    start: (_name, { traceparent }) => ({ traceparent: `${traceparent}/dial`, end: () => void told.push('dial') }),
    attempt: ({ traceparent }, { kind }, number) => ({
      traceparent: `${traceparent}/${number}`,
      end: ({ outcome }) => void told.push(`${kind} ${outcome}`),
    }),
  };
}

/** A gateway's dial through one session after the other. Each session has its own Dial. */
function gateway(tracer: DialTracer, ...ways: Dial[]): { dial: Dial; seen: DialRequest[] } {
  const observation = { events: planeEvents(), tracer };
  const directory = plane(...ways.map((_, index) => `h${index}`));
  const seen: DialRequest[] = [];
  const route = routed({
    strategies: ['default'],
    zone: '',
    parkTimeout: 0,
    observation,
    deadlines: new Deadlines(),
    directory,
    nextHop: () => ({ dial: (dial: DialRequest) => (ways[seen.push(dial) - 1] as Dial)(dial) }),
  });
  return { dial: pipeline({ role: 'gateway', open: route, observation }), seen };
}

const traced = (): DialRequest => ({ ...request, traceparent: 'caller' });

test('each attempt is a span below the dial, and its context goes to the hub', async (t) => {
  const pass = stoppedTime(t);
  const told: string[] = [];
  const lost = new DialError('connection_terminated', 'gone', { retryable: true });
  const ways: Dial[] = [() => Promise.reject(lost), silent([]), async () => established()];
  const { dial, seen } = gateway(pathTracer(told), ...ways);
  const asked = traced();
  const dialled = dial(asked);
  await tick();
  pass(300);
  await dialled;
  assert.deepEqual(
    seen.map(({ traceparent }) => traceparent),
    ['caller/dial/1', 'caller/dial/2', 'caller/dial/3'],
  );
  assert.deepEqual(told, ['first failed', 'hedge established', 'retry overtaken', 'dial']);
  assert.equal(asked.traceparent, 'caller/dial', 'the tunnel belongs to the dial');
});

test('a refused dial ends the span of its attempt once', async () => {
  const told: string[] = [];
  const refused = new DialError('connection_refused', 'dial tcp x:1: connect: connection refused');
  const { dial } = gateway(pathTracer(told), () => Promise.reject(refused));
  await assert.rejects(dial(traced()), refused);
  assert.deepEqual(told, ['first failed', 'dial']);
  assert.equal(refused.traceparent, 'caller/dial', 'an answer to the caller can name the trace');
});

test('without tracing, the context of the caller reaches the hub unchanged', async () => {
  const { dial, seen } = gateway(noTracer, async () => established());
  await dial(traced());
  assert.equal(seen[0]?.traceparent, 'caller');
});
