import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { Metadata } from '@grpc/grpc-js';
import { redisMissing } from '@isthmus/directory/testing/servers';
import {
  type OtlpReceiver,
  otlpGrpcReceiver,
  otlpReceiver,
  type ReceivedSpan,
  type SpanTree,
  spanTree,
} from '@isthmus/telemetry/testing';
import {
  allInOne,
  type Back,
  connectThrough,
  type Env,
  echo,
  type Front,
  newTrust,
  type Program,
  packetsThrough,
  refused,
  type Scope,
  scoped,
  split,
  until,
  web,
} from '../harness/index.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const OTHER = `f${TRACE.slice(1)}`;
const PARENT = '00f067aa0ba902b7';
const TRACEPARENT = `00-${TRACE}-${PARENT}-01`;

const AT_HUB: SpanTree = { 'hub.dial': { 'agent.dial': { 'agent.connect': {} } } };
/** The spans of a dial that needed one attempt, and of its tunnel. */
const ESTABLISHED: SpanTree = { 'gateway.dial': { 'gateway.attempt': AT_HUB, 'gateway.tunnel': {} } };
/** How many spans such a tree has. */
const ALL = 6;

/** Starts a receiver. Returns it with the environment for programs that export to it at once. */
async function collector(scope: Scope) {
  return collecting(scope.use(await otlpReceiver()));
}

/** The same by gRPC and mutual TLS. */
async function grpcCollector(scope: Scope) {
  const { callers, caller } = await newTrust(scope);
  const { cert, key } = await callers.server();
  const [files, ca] = [{ cert: readFileSync(cert), key: readFileSync(key) }, readFileSync(callers.cert)];
  return collecting(scope.use(await otlpGrpcReceiver({ ...files, ca })), {
    OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
    OTEL_EXPORTER_OTLP_CERTIFICATE: callers.cert,
    OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: caller.cert,
    OTEL_EXPORTER_OTLP_CLIENT_KEY: caller.key,
  });
}

function collecting<Receiver extends Pick<OtlpReceiver, 'endpoint' | 'spans'>>(receiver: Receiver, more: Env = {}) {
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint, OTEL_BSP_SCHEDULE_DELAY: '50', ...more };
  const spansOf = async (traceId: string, count: number) => {
    // An exporter that gets no answer in its time sends its spans again.
    const find = () => [
      ...new Map(receiver.spans.flatMap((span) => (span.traceId === traceId ? [[span.spanId, span]] : []))).values(),
    ];
    await until(() => find().length >= count, {
      what: () => `${count} spans; received: ${find().map(({ name }) => name)}`,
    });
    return find();
  };
  return { receiver, env, spansOf };
}

/** Dials as an API server, and closes as soon as there is an answer. */
async function dialOnce(scope: Scope, { connect: via }: Front, destination: string, traceparent?: string) {
  const headers = traceparent === undefined ? [] : [`traceparent: ${traceparent}`];
  const answer = await connectThrough(scope, { via, destination, headers });
  answer.socket.destroy();
  return answer;
}

async function dialFifty(scope: Scope, server: Front, destination: string): Promise<void> {
  for (let dials = 0; dials < 50; dials++) {
    assert.equal((await dialOnce(scope, server, destination, TRACEPARENT)).status, 200);
  }
}

function named(spans: readonly ReceivedSpan[], name: string): ReceivedSpan {
  const span = spans.find((each) => each.name === name);
  assert.ok(span, `a span ${name}`);
  return span;
}

/** Waits for a program's log lines with these messages, and returns their trace ids. */
async function loggedTraces(program: Program, ...messages: string[]): Promise<unknown[]> {
  const what = `a line of ${program.name}: `;
  const lines = messages.map((text) => program.waitForLog(({ msg }) => msg === text, { what: what + text }));
  return (await Promise.all(lines)).map(({ trace }) => trace);
}

/** Names an attempt by why it began and how it ended, because a dial may have several. */
function attempted({ name, attributes }: ReceivedSpan): string {
  if (name !== 'gateway.attempt') return name;
  return `${attributes['isthmus.attempt.kind']} ${attributes['isthmus.attempt.outcome']}`;
}

/** Leaves out attempts whose session was lost, and what they led to: on a busy machine, a dial may go on in the next. */
function established(spans: readonly ReceivedSpan[]): ReceivedSpan[] {
  const lost = new Set(
    spans.filter(
      (span) => attempted(span).endsWith(' failed') && span.attributes['error.type'] === 'connection_terminated',
    ),
  );
  // A parent may come after its children.
  for (let size = -1; size !== lost.size; ) {
    size = lost.size;
    const ids = new Set([...lost].map(({ spanId }) => spanId));
    for (const span of spans) if (ids.has(span.parentSpanId)) lost.add(span);
  }
  return spans.filter((span) => !lost.has(span));
}

test(
  "one dial through gateway, hub and agent is one trace, which continues its caller's",
  { skip: redisMissing() },
  scoped(async (scope) => {
    const { env, spansOf } = await collector(scope);
    // At -v=5 a hub logs dials too. With one session, no dial is hedged.
    const v5 = { v: 5 };
    const flags = { gatewayFlags: v5, hubFlags: v5, agentFlags: v5 };
    const { gateways, hubs, agents } = await split(scope, { gateways: 1, hubs: 1, agents: 1, env, ...flags });
    const [gateway] = gateways as [Front];
    const destination = await web(scope);
    const { port } = destination;
    assert.equal((await dialOnce(scope, gateway, `localhost:${port}`, TRACEPARENT)).status, 200);

    const all = async () => {
      const came = await spansOf(TRACE, ALL + 1);
      const ids = new Set([PARENT, ...came.map(({ spanId }) => spanId)]);
      const found = established(came);
      return found.length >= ALL + 1 && came.every(({ parentSpanId }) => ids.has(parentSpanId)) && found;
    };
    const spans = await until(all, { what: 'all spans of the attempt that was established' });
    const atAgent = { 'agent.dial': { 'agent.dns': {}, 'agent.connect': {} } };
    const tree = { 'gateway.attempt': { 'hub.dial': atAgent }, 'gateway.tunnel': {} };
    assert.deepEqual(spanTree(spans), { 'gateway.dial': tree });
    const first = named(spans, 'gateway.dial');
    assert.equal(first.parentSpanId, PARENT);
    for (const { name, attributes, status, start, end } of spans) {
      assert.equal(attributes['isthmus.tenant'], 'default', name);
      assert.equal(attributes['isthmus.dial.id'], first.attributes['isthmus.dial.id'], name);
      assert.equal(attributes['error.type'], undefined, name);
      assert.equal(status.code, 0, name);
      assert.ok(start <= end, name);
    }
    const [attempt, hub, agent, connect] = ['gateway.attempt', 'hub.dial', 'agent.dial', 'agent.connect'].map((name) =>
      named(spans, name),
    ) as [ReceivedSpan, ReceivedSpan, ReceivedSpan, ReceivedSpan];
    for (const key of ['isthmus.session.id', 'isthmus.agent.id']) {
      assert.equal(first.attributes[key], attempt.attributes[key]);
      assert.equal(first.attributes[key], hub.attributes[key]);
    }
    for (const key of ['dns', 'connect', 'agent', 'hub']) {
      const ms = Number(first.attributes[`isthmus.dial.${key}_ms`]);
      assert.ok(ms >= 0 && ms <= first.end - first.start, `${key}: ${ms} ms`);
    }
    assert.equal(connect.attributes['network.peer.port'], port);
    assert.deepEqual(
      [first, hub, agent].map(({ resource }) => resource['service.name']),
      ['frontend-gw', 'backend-hub', 'proxy-agent'],
    );
    for (const program of [gateway.program, (hubs[0] as Back).program, agents[0] as Program]) {
      const rest = program === agents[0] ? [] : ['tunnel closed'];
      const traces = await loggedTraces(program, 'dial established', ...rest);
      assert.deepEqual(new Set(traces), new Set([TRACE]), program.name);
    }
  }),
);

test(
  'a dial that is hedged because its hub hangs is one trace of both attempts',
  { skip: redisMissing() },
  scoped(async (scope) => {
    const { receiver, env, spansOf } = await collector(scope);
    const plane = await split(scope, { gateways: 1, hubs: 2, agents: 2, env });
    const [gateway] = plane.gateways as [Front];
    const { authority } = await web(scope);
    const sessions = async () => (await gateway.program.metric('isthmus_reachable_sessions')).get('{}');
    await until(async () => (await sessions()) === 4, { what: 'a session of each agent at each hub' });
    // Half of the dials try the hanging hub first. After one of them has, later dials avoid it.
    (plane.hubs[0] as Back).program.signal('SIGSTOP');
    const traces = Array.from({ length: 16 }, (_, index) => index.toString(16) + TRACE.slice(1));
    for (const trace of traces) {
      const traceparent = `00-${trace}-${PARENT}-01`;
      assert.equal((await dialOnce(scope, gateway, authority, traceparent)).status, 200);
    }
    for (const trace of traces) await spansOf(trace, ALL);
    // On a slow machine a dial through the other hub may be hedged too, and established by its first attempt.
    const hedge = receiver.spans.find((span) => attempted(span) === 'hedge established');
    assert.ok(hedge, 'a dial tried the hub that hangs');
    const { 'gateway.dial': dialled, ...others } = spanTree(await spansOf(hedge.traceId, ALL + 1), attempted);
    // And one through the hub that hangs may be hedged once more.
    const { 'hedge overtaken': _more, ...rest } = dialled as SpanTree;
    assert.deepEqual(others, {});
    assert.deepEqual(rest, { 'first overtaken': {}, 'hedge established': AT_HUB, 'gateway.tunnel': {} });
  }),
);

test(
  'the trace of a failed dial says why (in one span if its caller does not sample), and dials go on without the collector',
  scoped(async (scope) => {
    const { receiver, env, spansOf } = await collector(scope);
    const { server, agents } = await allInOne(scope, { env: { ...env, OTEL_EXPORTER_OTLP_TIMEOUT: '500' } });
    const [agent] = agents as [Program];
    const answer = await dialOnce(scope, server, await refused(), TRACEPARENT);
    assert.equal(answer.status, 502);
    assert.match(answer.headers['proxy-status'] ?? '', new RegExp(`; trace-id="${TRACE}"$`));
    const spans = await spansOf(TRACE, ALL - 1);
    assert.deepEqual(spanTree(spans), { 'gateway.dial': { 'gateway.attempt': AT_HUB } });
    for (const { attributes, status } of spans) {
      assert.equal(attributes['error.type'], 'connection_refused');
      assert.equal(status.code, 2);
      assert.match(status.message, /connection refused/);
    }
    for (const program of [server.program, agent]) {
      assert.deepEqual(await loggedTraces(program, 'dial failed'), [TRACE]);
    }

    const unsampled = `00-${OTHER}-${PARENT}-00`;
    const destination = await web(scope);
    assert.equal((await dialOnce(scope, server, destination.authority, unsampled)).status, 200);
    const unseen = await dialOnce(scope, server, await refused(), unsampled);
    assert.match(unseen.headers['proxy-status'] ?? '', new RegExp(`; trace-id="${OTHER}"$`));
    const [span, ...others] = await spansOf(OTHER, 1);
    assert.ok(span);
    assert.deepEqual(others, []);
    assert.equal(span.parentSpanId, PARENT);
    assert.equal(span.attributes['isthmus.dial.kept'], 'failed');
    assert.equal(span.attributes['error.type'], 'connection_refused');
    assert.deepEqual(
      span.events.map(({ name, attributes }) => [name, attributes['isthmus.attempt.outcome']]),
      [['gateway.attempt', 'failed']],
    );

    await receiver[Symbol.asyncDispose]();
    const gone = server.program.waitForLog(({ msg }) => msg === 'traces cannot be exported and are dropped', {
      what: 'a line that says so',
    });
    await dialFifty(scope, server, destination.authority);
    await gone;
    await dialFifty(scope, server, destination.authority);
  }),
);

test(
  'no dial waits for a collector that never answers',
  scoped(async (scope) => {
    const { receiver, env } = await collector(scope);
    receiver.status = 0;
    const { server } = await allInOne(scope, { env: { ...env, OTEL_EXPORTER_OTLP_TIMEOUT: '600000' } });
    const { authority } = await web(scope);
    assert.equal((await dialOnce(scope, server, authority, TRACEPARENT)).status, 200);
    await until(() => receiver.requests.length > 0, { what: 'an export' });
    await dialFifty(scope, server, authority);
    assert.ok(!server.program.logs.some(({ msg }) => String(msg).startsWith('traces cannot be exported')));
  }),
);

test(
  "a dial starts a trace if its caller has none and continues a gRPC caller's, and the tunnel's span says what it carried",
  scoped(async (scope) => {
    const { env, spansOf } = await grpcCollector(scope);
    const { server, agents } = await allInOne(scope, { env, serverFlags: { v: 5 }, agentFlags: { v: 5 } });
    const [agent] = agents as [Program];
    const destination = await web(scope);
    assert.equal((await dialOnce(scope, server, destination.authority)).status, 200);
    const [trace] = await loggedTraces(server.program, 'dial established');
    const spans = await spansOf(String(trace), ALL);
    assert.deepEqual(spanTree(spans), ESTABLISHED);
    assert.equal(named(spans, 'gateway.dial').parentSpanId, '');
    for (const program of [server.program, agent]) {
      assert.deepEqual(await loggedTraces(program, 'dial established', 'tunnel closed'), [trace, trace], program.name);
    }

    const echoing = await echo(scope);
    const metadata = new Metadata();
    metadata.set('traceparent', TRACEPARENT);
    const packets = packetsThrough(scope, server.grpc, metadata);
    const { connectID } = await packets.dial(echoing.authority);
    packets.send({ type: 'DATA', connectID, error: '', data: Buffer.from('ping') });
    await packets.expect('DATA');
    packets.send({ type: 'CLOSE_REQ', connectID });
    const continued = await spansOf(TRACE, ALL);
    assert.deepEqual(spanTree(continued), ESTABLISHED);
    assert.equal(named(continued, 'gateway.dial').parentSpanId, PARENT);
    const { attributes } = named(continued, 'gateway.tunnel');
    assert.equal(attributes['isthmus.tunnel.up_bytes'], 4);
    assert.equal(attributes['isthmus.tunnel.down_bytes'], 4);
    assert.equal(attributes['isthmus.tunnel.closed_by'], 'caller');
  }),
);

test(
  "without OTEL_*, nothing is exported and the caller's context is passed on",
  scoped(async (scope) => {
    const { receiver } = await collector(scope);
    const { server, agents } = await allInOne(scope, { serverFlags: { v: 5 }, agentFlags: { v: 5 } });
    const destination = await web(scope);
    assert.equal((await dialOnce(scope, server, destination.authority, TRACEPARENT)).status, 200);
    for (const program of [server.program, ...agents]) {
      assert.deepEqual(await loggedTraces(program, 'dial established'), [TRACE]);
      assert.ok(!program.lines.some((line) => line.includes('traces are exported')));
    }
    assert.deepEqual(receiver.requests, []);
  }),
);
