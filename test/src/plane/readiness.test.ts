import assert from 'node:assert/strict';
import test from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import {
  echo,
  eventually,
  freePort,
  newTrust,
  type Program,
  peerFlags,
  type Scope,
  scoped,
  split,
  startAgent,
  startGateway,
  startHub,
  startServer,
} from '../harness/index.ts';
import { carries, dial } from './dials.ts';

/** Returns a program's health pages. */
async function pages(program: Program) {
  const [healthz, readyz, ready, verbose] = await Promise.all(
    ['/healthz', '/readyz', '/ready', '/readyz?verbose'].map((path) => program.get(path)),
  );
  assert.deepEqual(readyz, ready, '/ready is the old name of /readyz');
  assert.deepEqual(healthz, { status: 200, body: 'ok' });
  const checks = (verbose?.body ?? '').split('\n').filter((line) => line.startsWith('['));
  return { status: readyz?.status, body: readyz?.body, checks };
}

function failed(checks: readonly string[]): string[] {
  return checks.filter((line) => line.startsWith('[-]')).map((line) => line.replace(/; last failure .*$/, ''));
}

async function failing(program: Program, status: number, ...checks: string[]): Promise<void> {
  await eventually(async () => {
    const page = await pages(program);
    assert.deepEqual(failed(page.checks), checks);
    assert.equal(page.status, status);
    for (const check of checks) assert.ok(page.body?.includes(check.slice(check.indexOf(':') + 2)), page.body);
  });
}

/** Waits until a program is ready, and asserts that it has exactly these checks and what each reports. */
async function isReady(program: Program, checks: Readonly<Record<string, RegExp>>): Promise<void> {
  await program.waitReady();
  await eventually(async () => {
    const page = await pages(program);
    assert.deepEqual([page.status, page.body], [200, 'ok']);
    assert.deepEqual(
      page.checks.map((line) => /^\[\+\]([\w-]+) ok/.exec(line)?.[1]),
      Object.keys(checks),
    );
    for (const [index, [name, detail]] of Object.entries(checks).entries()) {
      assert.match((page.checks[index] ?? '').slice(`[+]${name} ok: `.length), detail, name);
    }
  });
}

/** Asserts that a program reports its drain while a tunnel keeps it running, and then exits. */
async function drains(program: Program, status: number, release: () => void): Promise<void> {
  program.signal('SIGTERM');
  await eventually(async () => {
    const page = await pages(program);
    assert.ok(page.checks.includes('[-]admission failed: draining'), page.checks.join('\n'));
    assert.equal(page.status, status);
  });
  release();
  assert.deepEqual(await program.ended(), { code: 0, signal: null });
}

test(
  'the all-in-one server and its agent report when they are ready and when they no longer are',
  scoped(async (scope: Scope) => {
    const trust = await newTrust(scope);
    // Upstream's server does not wait for a drain unless told to.
    const server = await startServer(scope, trust, { 'graceful-shutdown-timeout': '30s' });
    await failing(server.program, 500, '[-]sessions failed: no agent has a session');
    const behindService = await server.program.get('/readyz?exclude=sessions');
    assert.deepEqual(behindService, { status: 200, body: 'ok' }, 'agents come through a Service that waits for this');
    const lonely = await startAgent(scope, trust, await freePort());
    await failing(lonely, 503, '[-]servers failed: not connected to any server');
    const agent = await startAgent(scope, trust, server.agentPort);
    const registry = /^in memory$/;
    const sessions = /^sessions: 1 \(default: 1\)$/;
    await isReady(server.program, {
      admission: /^$/,
      sockets: /^$/,
      registry,
      registration: /memory/,
      sessions,
      hubs: /^alone$/,
    });
    await isReady(agent, { admission: /^$/, servers: /^connected to 1 of 1$/ });

    const destination = await echo(scope);
    const tunnel = await dial(scope, server, 'connect', destination.authority);
    await carries(tunnel);
    const other = await startAgent(scope, trust, server.agentPort);
    await other.waitReady();
    await drains(agent, 503, () => tunnel.destroy());
    const last = await dial(scope, server, 'grpc', destination.authority);
    await carries(last);
    await drains(server.program, 500, () => last.destroy());
    await failing(other, 503, '[-]servers failed: not connected to any server');
  }),
);

test(
  'a gateway and a hub report when they are ready and when they no longer are',
  { skip: redisMissing() },
  scoped(async (scope: Scope) => {
    const trust = await newTrust(scope);
    const nowhere = { 'redis-url': `redis://127.0.0.1:${await freePort()}`, plane: 'test' };
    const [blindHub, blindGateway] = await Promise.all([
      startHub(scope, trust, nowhere),
      peerFlags(trust).then((flags) => startGateway(scope, trust, { ...nowhere, ...flags })),
    ]);
    for (const { program } of [blindHub, blindGateway]) {
      await eventually(async () => {
        const { status, body, checks } = await pages(program);
        assert.equal(status, 500);
        assert.match(body ?? '', /^no copy of the registry yet: .*ECONNREFUSED/);
        assert.match(failed(checks)[0] ?? '', /^\[-\]registry failed: no copy of the registry yet/);
      });
    }

    const plane = await split(scope, { gateways: 1, hubs: 1 });
    const [gateway] = plane.gateways as [(typeof plane.gateways)[number]];
    const [hub] = plane.hubs as [(typeof plane.hubs)[number]];
    const [agent] = plane.agents as [Program];
    const registry = /^answered \d+\.\d s ago$/;
    const sessions = /^sessions: 1 \(default: 1\)$/;
    await isReady(gateway.program, { admission: /^$/, sockets: /^$/, registry, sessions, hubs: /^links: 1, hubs: 1$/ });
    await isReady(hub.program, { admission: /^$/, registry, registration: /^hub .* is registered$/, sessions });
    const destination = await echo(scope);
    const tunnel = await dial(scope, gateway, 'connect', destination.authority);
    await carries(tunnel);
    await drains(gateway.program, 500, () => tunnel.destroy());

    const next = await startGateway(scope, plane.trust, {
      'redis-url': plane.redis.url,
      plane: 'test',
      ...(await peerFlags(plane.trust)),
    });
    await next.program.waitReady();
    const last = await dial(scope, next, 'connect', destination.authority);
    await drains(hub.program, 500, () => last.destroy());
    await agent.kill();
    // Dials wait for agents here: somewhere else they would be refused.
    await eventually(async () => {
      const { status, checks } = await pages(next.program);
      assert.deepEqual(checks.slice(-2), ['[+]sessions ok: no agent has a session', '[+]hubs ok: links: 0, hubs: 0']);
      assert.equal(status, 200);
    });
  }),
);
