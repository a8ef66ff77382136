import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, get, type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import test from 'node:test';
import {
  connectThrough,
  echo,
  eventually,
  freePort,
  grpcThrough,
  newTrust,
  type Program,
  packetsThrough,
  refused,
  scoped,
  startAgent,
  startProgram,
  startServer,
  tunnelThrough,
} from '../harness/index.ts';
import { acrossShared, EVERY_PAIR } from './rig.ts';

const across = acrossShared();

const SERVER = 'konnectivity_network_proxy_server_';
const AGENT = 'konnectivity_network_proxy_agent_';

const SERVER_BUCKETS = ['1e-06', '1e-05', '0.0001', '0.005', '0.025', '0.1', '0.5', '2.5', '12.5', '+Inf'];
const CONNECTION_BUCKETS = [
  '1',
  '5',
  '15',
  '30',
  '60',
  '300',
  '900',
  '1800',
  '3600',
  '14400',
  '43200',
  '86400',
  '+Inf',
];
const AGENT_BUCKETS = ['0.005', '0.025', '0.1', '0.5', '2.5', '10', '30', '+Inf'];

/** Returns the types of a page's metric families, by name. */
function familiesOf(page: string): Map<string, string> {
  return new Map(
    [...page.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => [name as string, type as string]),
  );
}

/** Returns numbers, because each library chooses whether to write 1e-06 or 0.000001. */
function bucketsOf(page: string, family: string): number[] {
  const bounds = page.matchAll(new RegExp(`^${family}_bucket{(?:[^}]*,)?le="([^"]+)"`, 'gm'));
  return [...new Set([...bounds].map(([, bound]) => Number(bound === '+Inf' ? Infinity : bound)))];
}

function numbers(bounds: readonly string[]): number[] {
  return bounds.map((bound) => Number(bound === '+Inf' ? Infinity : bound));
}

/** Types where upstream has them; a family that this version of the Go library lacks is asked of ours alone. */
function assertFamilies(program: Program, page: string, wanted: Readonly<Record<string, string>>): void {
  const families = familiesOf(page);
  for (const [name, type] of Object.entries(wanted))
    assert.equal(families.get(name), type, `${name} of ${program.name}`);
}

across(EVERY_PAIR, "the server's metrics have upstream's names, types, labels and buckets", async (scope, rig) => {
  const { server } = await rig();
  const destination = await echo(scope);
  const tunnel = await tunnelThrough(scope, { via: server.connect, destination: destination.authority });
  const stream = await grpcThrough(scope, server.grpc, destination.authority);
  stream.write('x');
  await packetsThrough(scope, server.grpc).dial(await refused());
  await eventually(async () => {
    const { body: page } = await server.program.get('/metrics');
    assertFamilies(server.program, page, {
      [`${SERVER}dial_duration_seconds`]: 'histogram',
      [`${SERVER}frontend_write_duration_seconds`]: 'histogram',
      [`${SERVER}grpc_connections`]: 'gauge',
      [`${SERVER}http_connections`]: 'gauge',
      [`${SERVER}ready_backend_connections`]: 'gauge',
      [`${SERVER}pending_backend_dials`]: 'gauge',
      [`${SERVER}established_connections`]: 'gauge',
      [`${SERVER}ready_backends`]: 'gauge',
      [`${SERVER}dial_failure_count`]: 'counter',
      [`${SERVER}stream_packets_total`]: 'counter',
    });
    assert.deepEqual(bucketsOf(page, `${SERVER}dial_duration_seconds`), numbers(SERVER_BUCKETS));
    const value = async (family: string, labels = '{}') =>
      (await server.program.metric(`${SERVER}${family}`)).get(labels);
    assert.equal(await value('established_connections'), 2);
    assert.equal(await value('http_connections'), 1);
    assert.equal(await value('pending_backend_dials'), 0);
    assert.equal(await value('ready_backends', '{proxy_strategy="default"}'), 1);
    assert.equal(await value('dial_failure_count', '{reason="error_response"}'), 1);
    assert.equal(await value('stream_packets_total', '{packet_type="DIAL_REQ",segment="from_client"}'), 2);
    assert.equal(await value('stream_packets_total', '{packet_type="DATA",segment="from_client"}'), 1);
  });
  tunnel.destroy();
});

across(EVERY_PAIR, "the agent's metrics have upstream's names, types, labels and buckets", async (scope, rig) => {
  const { server, agents } = await rig();
  const [agent] = agents as [Program];
  const refusals = `${AGENT}endpoint_dial_failure_total`;
  const before = (await agent.metric(refusals)).get('{reason="unknown"}') ?? 0;
  const destination = await echo(scope);
  await tunnelThrough(scope, { via: server.connect, destination: destination.authority });
  await packetsThrough(scope, server.grpc).dial(await refused());
  await eventually(async () => {
    const { body: page } = await agent.get('/metrics');
    assertFamilies(agent, page, {
      [`${AGENT}dial_duration_seconds`]: 'histogram',
      [`${AGENT}open_server_connections`]: 'gauge',
      [`${AGENT}known_server_count`]: 'gauge',
      [`${AGENT}open_endpoint_connections`]: 'gauge',
      [refusals]: 'counter',
    });
    assert.deepEqual(bucketsOf(page, `${AGENT}dial_duration_seconds`), numbers(AGENT_BUCKETS));
    const value = async (family: string, labels = '{}') => (await agent.metric(`${AGENT}${family}`)).get(labels);
    assert.equal(await value('open_server_connections'), 1);
    assert.equal(await value('known_server_count'), 1);
    assert.equal(await value('open_endpoint_connections'), 1);
    assert.equal((await agent.metric(refusals)).get('{reason="unknown"}'), before + 1);
  });
});

test(
  "our metrics keep the names of upstream's families and add no label or timestamp to them",
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const server = await startServer(scope, trust);
    const agent = await startAgent(scope, trust, server.agentPort);
    await Promise.all([server.program, agent].map((program) => program.waitReady()));
    const { body: page } = await server.program.get('/metrics');
    const destination = await echo(scope);
    const before = (await server.program.metric(`${SERVER}connection_duration_seconds_count`)).get('{}') ?? 0;
    const tunnel = await tunnelThrough(scope, { via: server.mtls, destination: destination.authority });
    tunnel.destroy();
    await eventually(async () => {
      const { body } = await server.program.get('/metrics');
      assert.deepEqual(bucketsOf(body, `${SERVER}connection_duration_seconds`), numbers(CONNECTION_BUCKETS));
      const count = (await server.program.metric(`${SERVER}connection_duration_seconds_count`)).get('{}');
      assert.equal(count, before + 1);
    });
    const labels =
      /^(service_method|proxy_strategy|reason|segment|packet_type|code|le|direction|http_status_code|http_response_code)$/;
    for (const line of `${page}${(await agent.get('/metrics')).body}`.split('\n')) {
      if (!line.startsWith('konnectivity_')) continue;
      assert.match(line, /^\w+(\{[^}]*\})? [^ ]+$/, 'a timestamp');
      for (const [, label] of line.matchAll(/[{,](\w+)=/g)) assert.match(label ?? '', labels, line);
    }
    assert.doesNotMatch(page, /dial_failure_count_total/);
  }),
);

test(
  '/healthz of a server without agents returns 200 with its gauges at 0, and /readyz and /ready fail',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const { program, agentPort } = await startServer(scope, trust);
    for (const path of ['/readyz', '/ready']) assert.ok((await program.get(path)).status >= 500, path);
    for (const gauge of [
      'http_connections',
      'established_connections',
      'pending_backend_dials',
      'ready_backend_connections',
    ]) {
      assert.equal((await program.metric(`${SERVER}${gauge}`)).get('{}'), 0, gauge);
    }
    const agent = await startAgent(scope, trust, agentPort);
    await Promise.all([program, agent].map((each) => each.waitReady()));
    assert.equal((await program.get('/ready')).status, 200);
    await agent.kill();
    await eventually(async () => assert.ok((await program.get('/readyz')).status >= 500));
  }),
);

test(
  'an agent without a server is healthy and not ready',
  scoped(async (scope) => {
    const agent = await startAgent(scope, await newTrust(scope), await freePort());
    await eventually(async () => assert.equal((await agent.get('/healthz')).status, 200));
    assert.ok((await agent.get('/readyz')).status >= 500);
  }),
);

test(
  "health servers keep an idle connection longer than Node's default",
  scoped(async (scope) => {
    const { program } = await startServer(scope, await newTrust(scope));
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    scope.defer(() => agent.destroy());
    const sockets = new Set<unknown>();
    const fetchOnce = async () => {
      const request = get({ agent, host: '127.0.0.1', port: program.healthPort, path: '/healthz' });
      const [response] = (await once(request, 'response')) as [IncomingMessage];
      sockets.add(response.socket);
      await text(response);
      return String(response.headers['keep-alive'] ?? '');
    };
    const keepAlive = await fetchOnce();
    const told = /timeout=(\d+)/.exec(keepAlive)?.[1];
    if (told !== undefined) return assert.ok(Number(told) >= 60, keepAlive);
    // If the server does not announce its limit, the connection must outlive Node's default of 5 s.
    await new Promise((resolve) => setTimeout(resolve, 7_000));
    await fetchOnce();
    assert.equal(sockets.size, 1);
  }),
);

test(
  "upstream's flags work in Go's syntax, old names too",
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const server = await startServer(scope, trust, {
      'proxy-strategies': 'destHost,defaultRoute,default',
      'backend-dial-timeout': '1m30s',
      'graceful-shutdown-timeout': '0s',
      'keepalive-time': '1h',
      'frontend-keepalive-time': '1h30m0.5s',
      'xfr-channel-size': 10,
      'kubeconfig-qps': '1.5',
      'kube-api-content-type': 'application/json',
      'enable-profiling': false,
      'delete-existing-uds-file': 'TRUE',
      'tls-min-version': 'VersionTLS12',
      'cipher-suites': 'TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256',
      'warn-on-channel-limit': true,
      v: 4,
      vmodule: 'server=5',
      logtostderr: true,
      stderrthreshold: 2,
    });
    const agent = await startAgent(scope, trust, server.agentPort, {
      'alpn-proto': '[]',
      'lease-label': 'k8s-app=konnectivity-server',
      'agent-identifiers': 'default-route=true&host=node.example',
      'server-count-source': 'max',
      'xfr-channel-size': 150,
      'sync-forever': 'F',
      'keepalive-time': '30s',
      v: 2,
    });
    await Promise.all([server.program, agent].map((program) => program.waitReady()));
    const destination = await echo(scope);
    assert.equal((await connectThrough(scope, { via: server.mtls, destination: destination.authority })).status, 200);
  }),
);

test(
  'an unknown flag or a bad value prints one line that names it and exits with code 1',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const tls = { 'server-ca-cert': trust.callers.cert, 'server-key': trust.caller.key };
    const wrong = [
      { flags: { 'no-such-flag': 1 }, named: 'no-such-flag' },
      { flags: { 'backend-dial-timeout': '5' }, named: 'backend-dial-timeout' },
      { flags: { ...tls, 'server-cert': '/not/there.pem' }, named: 'server-cert' },
    ];
    for (const { flags, named } of wrong) {
      const program = startProgram(scope, 'proxy-server', { flags });
      assert.equal((await program.ended()).code, 1, program.tail);
      assert.equal(program.lines.filter((line) => line.includes(named)).length, 1, program.tail);
      assert.equal(program.lines.length, 1, program.tail);
    }
  }),
);
