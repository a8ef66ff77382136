import assert from 'node:assert/strict';
import test from 'node:test';
import { redisMissing } from '@isthmus/registry/testing';
import { otlpReceiver, type ReceivedSpan, spanTree } from '@isthmus/telemetry/testing';
import {
  allInOne,
  connectThrough,
  type Front,
  type Program,
  refused,
  type Scope,
  scoped,
  split,
  until,
  web,
} from '../harness/index.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = '00f067aa0ba902b7';
const TRACEPARENT = `00-${TRACE}-${PARENT}-01`;
const DEADLINE = 20_000;

/** A receiver, and the environment of programs that shall export to it at once. */
async function collector(scope: Scope) {
  const receiver = scope.use(await otlpReceiver());
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint, OTEL_BSP_SCHEDULE_DELAY: '50' };
  const spansOf = async (traceId: string, count: number) => {
    const find = () => receiver.spans.filter((span) => span.traceId === traceId);
    await until(() => find().length >= count, {
      deadline: DEADLINE,
      what: () => `${count} spans; came: ${find().map(({ name }) => name)}`,
    });
    return find();
  };
  return { receiver, env, spansOf };
}

/** An API server's dial that ends as soon as it is answered. */
async function dialOnce(scope: Scope, { connect: via }: Front, destination: string, traceparent?: string) {
  const headers = traceparent === undefined ? [] : [`traceparent: ${traceparent}`];
  const answer = await connectThrough(scope, { via, destination, headers });
  answer.socket.destroy();
  return answer;
}

function named(spans: readonly ReceivedSpan[], name: string): ReceivedSpan {
  const span = spans.find((each) => each.name === name);
  assert.ok(span, `a span ${name}`);
  return span;
}

/** The trace ids of a program's lines with these messages, once each is there. */
async function loggedTraces(program: Program, ...messages: string[]): Promise<unknown[]> {
  const what = `a line of ${program.name}: `;
  const lines = messages.map((text) =>
    program.waitForLog(({ msg }) => msg === text, { deadline: DEADLINE, what: what + text }),
  );
  return (await Promise.all(lines)).map(({ trace }) => trace);
}

test(
  'one dial through gateway, hub and agent is one trace, which continues its caller',
  { skip: redisMissing() },
  scoped(async (scope) => {
    const { env, spansOf } = await collector(scope);
    // At -v=5 a hub logs dials too.
    const plane = await split(scope, { gateways: 1, hubs: 1, env, hubFlags: { v: 5 } });
    const [gateway] = plane.gateways as [Front];
    const [hub] = plane.hubs.map(({ program }) => program) as [Program];
    const [agent] = plane.agents as [Program];
    const destination = await web(scope);
    assert.equal((await dialOnce(scope, gateway, destination.authority, TRACEPARENT)).status, 200);

    const spans = await spansOf(TRACE, 3);
    assert.deepEqual(spanTree(spans), { 'gateway.dial': { 'hub.dial': { 'agent.dial': {} } } });
    const [first, second, third] = ['gateway.dial', 'hub.dial', 'agent.dial'].map((name) => named(spans, name)) as [
      ReceivedSpan,
      ReceivedSpan,
      ReceivedSpan,
    ];
    assert.equal(first.parentSpanId, PARENT);
    for (const { attributes, status } of spans) {
      assert.equal(attributes['server.address'], '127.0.0.1');
      assert.equal(attributes['server.port'], destination.port);
      assert.equal(attributes['network.transport'], 'tcp');
      assert.equal(attributes['isthmus.tenant'], 'default');
      assert.equal(attributes['isthmus.dial.id'], first.attributes['isthmus.dial.id']);
      assert.equal(attributes['error.type'], undefined);
      assert.notEqual(status.code, 2);
    }
    assert.equal(first.attributes['isthmus.agent.id'], 'agent-0');
    assert.equal(first.attributes['isthmus.session.id'], second.attributes['isthmus.session.id']);
    assert.equal(first.attributes['isthmus.caller.via'], 'http-connect');
    // SERVER, SERVER and CLIENT.
    assert.deepEqual([first.kind, second.kind, third.kind], [2, 2, 3]);
    assert.deepEqual(
      [first, second, third].map(({ resource }) => resource['service.name']),
      ['frontend-gw', 'backend-hub', 'proxy-agent'],
    );
    for (const program of [gateway.program, hub, agent]) {
      const traces = await loggedTraces(program, 'dial established', ...(program === agent ? [] : ['tunnel closed']));
      assert.deepEqual(new Set(traces), new Set([TRACE]), program.name);
    }
  }),
);

test(
  'a failed dial is a trace that says why, in the all-in-one server as well',
  scoped(async (scope) => {
    const { env, spansOf } = await collector(scope);
    const { server, agents } = await allInOne(scope, { env });
    const [agent] = agents as [Program];
    const answer = await dialOnce(scope, server, await refused(), TRACEPARENT);
    assert.equal(answer.status, 502);
    const spans = await spansOf(TRACE, 3);
    assert.deepEqual(spanTree(spans), { 'gateway.dial': { 'hub.dial': { 'agent.dial': {} } } });
    for (const { attributes, status } of spans) {
      assert.equal(attributes['error.type'], 'connection_refused');
      assert.equal(status.code, 2);
      assert.match(status.message, /connection refused/);
    }
    for (const program of [server.program, agent]) {
      assert.deepEqual(await loggedTraces(program, 'dial failed'), [TRACE]);
    }
  }),
);

test(
  'a dial of a caller without a trace begins one, and all lines of the tunnel name it',
  scoped(async (scope) => {
    const { env, spansOf } = await collector(scope);
    const { server, agents } = await allInOne(scope, { env, agentFlags: { v: 5 } });
    const [agent] = agents as [Program];
    const destination = await web(scope);
    assert.equal((await dialOnce(scope, server, destination.authority)).status, 200);
    const [trace] = await loggedTraces(server.program, 'dial established');
    const spans = await spansOf(String(trace), 3);
    assert.deepEqual(spanTree(spans), { 'gateway.dial': { 'hub.dial': { 'agent.dial': {} } } });
    assert.equal(named(spans, 'gateway.dial').parentSpanId, '');
    for (const program of [server.program, agent]) {
      assert.deepEqual(await loggedTraces(program, 'dial established', 'tunnel closed'), [trace, trace], program.name);
    }
  }),
);

test(
  "without OTEL_* nothing is exported, and the caller's context is passed on",
  scoped(async (scope) => {
    const { receiver } = await collector(scope);
    const { server, agents } = await allInOne(scope);
    const destination = await web(scope);
    assert.equal((await dialOnce(scope, server, destination.authority, TRACEPARENT)).status, 200);
    for (const program of [server.program, ...agents]) {
      assert.deepEqual(await loggedTraces(program, 'dial established'), [TRACE]);
      assert.ok(!program.lines.some((line) => line.includes('traces are exported')));
    }
    assert.deepEqual(receiver.requests, []);
  }),
);
