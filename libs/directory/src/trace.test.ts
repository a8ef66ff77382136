import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import {
  type Dial,
  DialError,
  type DialRequest,
  type DialTracer,
  noTracer,
  observed,
  planeEvents,
} from '@isthmus/tunnel';
import { established, request } from '@isthmus/tunnel/testing';
import { routed } from './attempts.ts';
import { plane, silent } from './testing/routing.ts';

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
    directory,
    hub: () => (dial) => (ways[seen.push(dial) - 1] as Dial)(dial),
  });
  return { dial: observed('gateway', route, observation), seen };
}

const traced = (): DialRequest => ({ ...request, traceparent: 'caller' });

test('each attempt is a span below the dial, and its context goes to the hub', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const told: string[] = [];
  const lost = new DialError('connection_terminated', 'gone', { retryable: true });
  const ways: Dial[] = [() => Promise.reject(lost), silent([]), async () => established()];
  const { dial, seen } = gateway(pathTracer(told), ...ways);
  const asked = traced();
  const dialled = dial(asked);
  await turn();
  t.mock.timers.tick(300);
  await dialled;
  assert.deepEqual(
    seen.map(({ traceparent }) => traceparent),
    ['caller/dial/1', 'caller/dial/2', 'caller/dial/3'],
  );
  assert.deepEqual(told, ['first failed', 'hedge established', 'retry overtaken', 'dial']);
  assert.equal(asked.traceparent, 'caller/dial', 'the tunnel belongs to the dial');
  t.mock.timers.reset();
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
