import assert from 'node:assert/strict';
import test from 'node:test';
import type { Hosts } from '@isthmus/certificates';
import {
  type Back,
  type ConnectProxy,
  connectProxy,
  echo,
  eventually,
  freePort,
  HUB_NAMED,
  newTrust,
  type Program,
  packetHub,
  type Scope,
  scoped,
  startAgent,
  startProgram,
  startServer,
  type Trust,
  until,
} from '../harness/index.ts';
import { carries, dial } from './dials.ts';
import { isthmus } from './operator.ts';

/** Every hub of ours proves this name, and no resolver knows it: only the proxy does. */
const HUB = 'isthmus-hub';
const USER = 'edge';
const PASSWORD = 'g%65heim-9f3';
const BASIC = `Basic ${Buffer.from('edge:geheim-9f3').toString('base64')}`;

const UNAUTHENTICATED = 'HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic realm="edge"';

function wantsUser(proxy: ConnectProxy): ConnectProxy {
  proxy.refuses = ({ headers }) => (headers['proxy-authorization'] === BASIC ? undefined : UNAUTHENTICATED);
  return proxy;
}

const proxyAt = ({ port }: ConnectProxy, scheme = 'http') => `${scheme}://${USER}:${PASSWORD}@localhost:${port}`;

/** Over the variables of the machine that runs the test. Deno would ask through the proxy whether there is a newer Deno. */
const UNSET = { HTTPS_PROXY: '', https_proxy: '', NO_PROXY: '', no_proxy: '', DENO_NO_UPDATE_CHECK: '1' };

function agentBehind(scope: Scope, trust: Trust, port: number, env: Record<string, string>): Promise<Program> {
  const flags = { 'proxy-server-host': HUB, 'agent-id': 'edge-1' };
  return startAgent(scope, trust, port, flags, { ...UNSET, ...env });
}

/** A server whose certificate also names what a grpc client expects. */
async function serverFor(scope: Scope, trust: Trust) {
  const { cert, key } = await trust.agents.server(HUB_NAMED);
  return startServer(scope, trust, { 'cluster-cert': cert, 'cluster-key': key });
}

async function reaches(scope: Scope, server: Awaited<ReturnType<typeof serverFor>>): Promise<void> {
  const { authority } = await echo(scope);
  const tunnel = await dial(scope, server, 'connect', authority);
  await carries(tunnel);
  tunnel.destroy();
}

test(
  'an agent reaches its server through a proxy that wants a user, by a name that only the proxy resolves',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const server = await serverFor(scope, trust);
    const proxy = wantsUser(await connectProxy(scope));
    const agent = await agentBehind(scope, trust, server.agentPort, { https_proxy: proxyAt(proxy) });
    await agent.waitReady();
    await reaches(scope, server);
    assert.deepEqual([...new Set(proxy.asked)], [`${HUB}:${server.agentPort}`]);
    const said = await agent.waitForLog(({ proxy }) => proxy !== undefined, { what: 'a line about the proxy' });
    assert.equal(said.proxy, `http://localhost:${proxy.port}`);
    // The session dies with the proxy's connection, and comes back through it.
    proxy.cut();
    await until(() => proxy.asked.length > 1, { what: 'another CONNECT' });
    await agent.waitReady();
    await reaches(scope, server);
    assert.doesNotMatch(agent.lines.join('\n'), /geheim|g%65heim/);
  }),
);

test(
  'an agent reaches its server through a proxy that is itself reached over TLS',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const server = await serverFor(scope, trust);
    const proxy = wantsUser(await connectProxy(scope, await trust.callers.server()));
    const env = { HTTPS_PROXY: proxyAt(proxy, 'https'), NODE_EXTRA_CA_CERTS: trust.callers.cert };
    const agent = await agentBehind(scope, trust, server.agentPort, env);
    await agent.waitReady();
    await reaches(scope, server);
    // Without the authority, the proxy is not trusted.
    const stranger = await agentBehind(scope, trust, server.agentPort, { HTTPS_PROXY: proxyAt(proxy, 'https') });
    await stranger.waitForLine(/through the proxy https:\/\/localhost:\d+: .*certificate/);
    assert.doesNotMatch(stranger.lines.join('\n'), /geheim|g%65heim/);
  }),
);

test(
  "a proxy that is reached over TLS by its address proves that address: a certificate for localhost alone won't do",
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const server = await serverFor(scope, trust);
    const through = async (host: Hosts[number]) => {
      const proxy = await connectProxy(scope, await trust.callers.server({ hosts: [host] }));
      const env = { HTTPS_PROXY: `https://127.0.0.1:${proxy.port}`, NODE_EXTRA_CA_CERTS: trust.callers.cert };
      return { proxy, agent: await agentBehind(scope, trust, server.agentPort, env) };
    };
    const { agent } = await through({ type: 'ip', value: '127.0.0.1' });
    await agent.waitReady();
    const other = await through({ type: 'dns', value: 'localhost' });
    await other.agent.waitForLine(/through the proxy https:\/\/127\.0\.0\.1:\d+: .*certificate/i);
    assert.deepEqual(other.proxy.asked, []);
  }),
);

test(
  "an agent reaches a server that speaks only upstream's protocol through a proxy",
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const hub = await packetHub(scope, trust, 'go-1', HUB_NAMED);
    for (const scheme of ['http', 'https']) {
      const proxy = wantsUser(await connectProxy(scope, scheme === 'https' ? await trust.callers.server() : undefined));
      const env = { HTTPS_PROXY: proxyAt(proxy, scheme), NODE_EXTRA_CA_CERTS: trust.callers.cert };
      const before = hub.streams.length;
      const agent = await agentBehind(scope, trust, hub.port, env);
      await agent.waitReady();
      // Each CONNECT carries one stream, unless its attempt fails. One that takes a second on a busy machine is joined by another.
      const unused = async () => {
        const failures = await agent.metric('konnectivity_network_proxy_agent_server_connection_failure_count');
        return proxy.asked.length - (hub.streams.length - before) - (failures.get('{direction="to_server"}') ?? 0);
      };
      await until(async () => (await unused()) <= 0, { what: 'a stream for each CONNECT that did not fail' });
      assert.ok(hub.streams.length - before <= proxy.asked.length, 'a stream past the proxy');
      assert.deepEqual([...new Set(proxy.asked)], [`${HUB}:${hub.port}`]);
      await agent.kill();
    }
  }),
);

test(
  'NO_PROXY leads past a proxy, and a server on this machine is reached without one',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const server = await serverFor(scope, trust);
    const proxy = await connectProxy(scope);
    const env = { HTTPS_PROXY: proxyAt(proxy), NO_PROXY: `10.0.0.0/8,${HUB}:${server.agentPort}` };
    const direct = await agentBehind(scope, trust, server.agentPort, env);
    await direct.waitForLine(/isthmus-hub.*(ENOTFOUND|EAI_AGAIN|did not resolve)/);
    const local = await startAgent(scope, trust, server.agentPort, {}, { ...UNSET, HTTPS_PROXY: proxyAt(proxy) });
    await local.waitReady();
    assert.deepEqual(proxy.asked, []);
  }),
);

const REFUSALS: readonly (readonly [head: string, says: RegExp])[] = [
  [UNAUTHENTICATED, /407 .*asking for Basic: check the user and password in HTTPS_PROXY/],
  ['HTTP/1.1 403 Forbidden by policy', /403 Forbidden by policy .*NO_PROXY/],
  ['HTTP/1.1 502 Bad Gateway', /502 Bad Gateway .*the proxy cannot reach it/],
  ['220 mail.example ESMTP', /not an HTTP\/1\.1 answer: .*220 mail\.example ESMTP/],
];

test(
  'an agent says what a proxy refuses with in its log, on its health port and to isthmus, and connects once it no longer does',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const server: Back = await serverFor(scope, trust);
    const proxy = await connectProxy(scope);
    let refusal: string | undefined;
    proxy.refuses = () => refusal;
    refusal = UNAUTHENTICATED;
    const agent = await agentBehind(scope, trust, server.agentPort, { HTTPS_PROXY: proxyAt(proxy) });
    for (const [head, says] of REFUSALS) {
      refusal = head;
      await agent.waitForLine(says);
      await eventually(async () => {
        const { status, body } = await agent.get('/readyz?verbose');
        assert.equal(status, 503);
        assert.match(body, says);
        assert.match(body, new RegExp(`through the proxy http://localhost:${proxy.port}: `));
      });
    }
    const { out } = await isthmus(agent, 'check');
    assert.match(
      out,
      /FAIL .*not connected to any server; last failure \d+ s ago: .*through the proxy http:\/\/localhost/,
    );
    refusal = undefined;
    await agent.waitReady();
    assert.doesNotMatch(agent.lines.join('\n') + out, /geheim|g%65heim/);
  }),
);

test(
  'an agent whose proxy is unusable ends at once, and says why',
  scoped(async (scope) => {
    const env = { HTTPS_PROXY: `socks5://${USER}:${PASSWORD}@localhost:1080` };
    const agent = startProgram(scope, 'proxy-agent', {
      env,
      flags: { 'health-server-port': await freePort(), 'admin-server-port': await freePort() },
    });
    assert.equal((await agent.ended()).code, 1);
    assert.match(agent.lines.join('\n'), /proxy-agent: .*HTTPS_PROXY is not the URL of a proxy: want http:/);
    assert.doesNotMatch(agent.lines.join('\n'), /geheim|g%65heim/);
  }),
);
