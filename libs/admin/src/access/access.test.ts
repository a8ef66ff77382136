import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, type TestContext, test } from 'node:test';
import { Authority } from '@isthmus/certificates/testing';
import { adminApi } from '@isthmus/proto/admin';
import { ServerError } from 'nice-grpc';
import type { AdminBackend } from '../backend.ts';
import { tenantsPort } from '../testing/tenants-port.ts';

describe('access', () => {
  const OPERATOR = 'spiffe://plane.example/tenant/acme/operator/alice';
  const RPCS = Object.keys(adminApi.AdminDefinition.methods);

  let dir: string;
  let authority: Authority;
  before(async () => {
    dir = await mkdtemp(join(tmpdir(), 'isthmus-access-'));
    authority = await Authority.create(dir, 'operators');
  });
  after(() => rm(dir, { recursive: true }));

  const plane = (given?: Partial<AdminBackend>) => tenantsPort(authority, given);

  /** Lets open connections of a tenant that is gone stay. Otherwise each ends within a second, amid a call on a busy machine. */
  const stay = ({ mock }: TestContext): Disposable => {
    mock.timers.enable({ apis: ['setInterval'] });
    return { [Symbol.dispose]: () => mock.timers.reset() };
  };

  test("an operator of a tenant sees that tenant's part of everything", async () => {
    await using port = await plane();
    using client = await port.client(OPERATOR);
    const { admin } = client;
    const { sessions } = await admin.listSessions({});
    assert.deepEqual(
      sessions.map(({ sessionId }) => sessionId),
      ['mine'],
    );
    const { tunnels } = await admin.listTunnels({ tenant: 'acme' });
    assert.deepEqual(
      tunnels.map(({ dialId }) => dialId),
      ['d-acme'],
    );
    const { tenants, problems } = await admin.listTenants({});
    assert.deepEqual([tenants.map(({ name, agents }) => `${name} ${agents}`), problems], [['acme 1'], []]);
    const { agents } = await admin.listQuarantined({});
    assert.deepEqual(
      agents.map(({ tenant }) => tenant),
      ['acme'],
    );
    const { events } = await admin.listEvents({});
    assert.deepEqual(
      events.map(({ tenant }) => tenant),
      ['acme'],
    );
    const watched: (string | undefined)[] = [];
    for await (const { dial } of admin.watchDials({ recentOnly: true })) watched.push(dial?.tenant);
    assert.deepEqual(watched, ['acme']);
    const status = await admin.getStatus({});
    assert.deepEqual([status.sessions, status.tunnels, status.notices, status.dialRates], [1, 1, [], []]);
    assert.deepEqual(status.checks, [{ name: 'sessions', ok: true, detail: '' }]);
    assert.deepEqual(
      status.slowest.map(({ tenant }) => tenant),
      ['acme'],
    );
    assert.equal(await port.page('/metrics', OPERATOR), '200 of acme');
    for (const own of ['/sd', '/sd?tenant=acme']) {
      assert.equal(await port.page(own, OPERATOR), '200 [{"targets":["10.0.0.1:10250"],"labels":{"of":"acme"}}]');
    }
    assert.match(await port.page('/sd?tenant=beta', OPERATOR), /^403 your certificate is of tenant acme/);
    assert.equal((await admin.listMembers({})).members.length, 0);
    assert.deepEqual(port.operations, []);
  });

  test('an operator of the plane sees and does everything, and what it does is told', async () => {
    await using port = await plane();
    using client = await port.client();
    const { admin } = client;
    assert.equal((await admin.listSessions({})).sessions.length, 2);
    assert.equal((await admin.listTenants({})).problems.length, 1);
    await admin.kick({ target: { $case: 'agent', value: { tenant: 'beta', agentId: 'edge' } }, reason: 'test' });
    await admin.drain({});
    assert.equal(await port.page('/metrics'), '200 of all');
    assert.match(await port.page('/sd'), /^200 .*"of":"all"/);
    assert.match(await port.page('/sd?tenant=beta'), /^200 .*"of":"beta"/);
    assert.match(await port.page('/sd?tenant=none'), /^404 there is no such tenant/);
    const who = port.operations.map(({ operator, call, tenant, target, outcome, text }) => {
      assert.match(operator.remote, /^127\.0\.0\.1:\d+$/);
      return [operator.identity, call, tenant, target, outcome, text];
    });
    assert.deepEqual(who, [
      ['CN=alice', 'Kick', 'beta', 'agent edge', 'done', 'test'],
      ['CN=alice', 'Drain', undefined, 'this process', 'done', undefined],
    ]);
  });

  test('an operator of a tenant acts on that tenant alone, and every refusal says what was needed', async () => {
    await using port = await plane();
    using client = await port.client(OPERATOR);
    const { admin } = client;
    const kick = (target: adminApi.KickRequest['target']) => admin.kick({ target });
    const denied = /PERMISSION_DENIED: .*(operator of it|operators) ?(, or)? ?of the plane/;
    const agent = (tenant: string) => ({ tenant, agentId: 'edge' });
    const refused: Promise<unknown>[] = [
      admin.listSessions({ tenant: 'beta' }),
      admin.listTunnels({ tenant: 'beta' }),
      admin.listTenants({ tenant: 'beta' }),
      admin.listQuarantined({ tenant: 'beta' }),
      admin.explain({ tenant: 'beta', destination: 'h:1' }),
      admin.dial({ tenant: 'beta', destination: 'h:1' }),
      kick({ $case: 'agent', value: agent('beta') }),
      admin.quarantine({ agent: agent('beta'), reason: 'x' }),
      admin.getConfig({}),
      admin.recentLogs({}),
      admin.expectProbe({ remote: '127.0.0.1:1' }),
      admin.setLogLevel({ level: 'debug' }),
      admin.drain({}),
      admin.drain({ dryRun: true }),
    ];
    await Promise.all(refused.map((call) => assert.rejects(call, denied)));
    const names = port.operations.map(({ call, outcome, operator }) => `${call} ${outcome} ${operator.tenant}`);
    assert.equal(names.length, refused.length);
    assert.ok(
      names.every((name) => name.endsWith(' refused acme')),
      names.join(),
    );
    // What has no tenant in its request is not there for it.
    await assert.rejects(kick({ $case: 'sessionId', value: 'theirs' }), /NOT_FOUND/);
    await assert.rejects(kick({ $case: 'dialId', value: 'd-beta' }), /NOT_FOUND/);
    assert.deepEqual(port.done, []);
    await kick({ $case: 'agent', value: agent('') });
    await kick({ $case: 'dialId', value: 'd-acme' });
    await admin.quarantine({ agent: agent('acme'), reason: 'x' });
    assert.deepEqual(port.done, ['session mine', 'tunnel d-acme', 'quarantine acme/edge']);
    assert.match(await port.page('/debug/pprof/heap', OPERATOR), /^403 .*operators of the plane/);
  });

  test('every RPC and page is refused to a certificate of two tenants, of an agent, and of a tenant that is gone', async (t) => {
    using _ = stay(t);
    await using port = await plane();
    const beta = 'spiffe://plane.example/tenant/beta/operator/alice';
    const identities = [
      [OPERATOR, beta],
      ['spiffe://plane.example/tenant/acme/agent/edge'],
      ['spiffe://plane.example/tenant/gone/operator/alice'],
    ];
    for (const ids of identities) {
      using client = await port.client(...ids);
      const service = client.admin as unknown as Record<string, (request: object) => Promise<unknown>>;
      for (const rpc of RPCS) {
        const asked = async () => {
          const answer: unknown = service[rpc]?.({});
          if (rpc !== 'watchDials') return answer;
          for await (const event of answer as AsyncIterable<unknown>) return event;
        };
        await assert.rejects(asked, /PERMISSION_DENIED/, `${rpc} ${ids}`);
      }
      assert.match(await port.page('/metrics', ...ids), /^403 /);
      assert.match(await port.page('/sd', ...ids), /^403 /);
      assert.match(await port.page('/debug/pprof/', ...ids), /^403 /);
    }
    assert.deepEqual(port.done, []);
    assert.equal(port.operations.length, identities.length * (RPCS.length + 3));
    assert.ok(port.operations.every(({ outcome, text }) => outcome === 'refused' && text !== undefined));
  });

  test('why a gateway has no link to a hub is for operators of the plane', async () => {
    const hub = { hubId: 'h1', incarnation: 1, peerAddress: 'h1:1', agentAddress: '', zone: '', draining: false };
    const seen = {
      registry: { synced: true, up: true, detail: '', lastAnswerAt: undefined },
      members: async () => [],
      lastMembers: () => [],
      hubs: () => [hub],
      linkTo: () => 'down' as const,
      rttTo: () => undefined,
      failureOf: () => ({ error: new Error('gateway of acme, beta'), at: 1 }),
    };
    await using port = await plane({ plane: seen });
    for (const [ids, told] of [
      [[], 'gateway of acme, beta'],
      [[OPERATOR], undefined],
    ] as const) {
      using client = await port.client(...ids);
      const { hubs } = await client.admin.listMembers({});
      assert.deepEqual(
        hubs.map(({ hubId, failure }) => [hubId, failure?.text]),
        [['h1', told]],
      );
    }
  });

  test("gRPC is for the plane's operators alone", async () => {
    await using port = await plane();
    using root = await port.grpc();
    assert.equal((await root.admin.listSessions({})).sessions.length, 2);
    for (const id of [OPERATOR, 'spiffe://plane.example/tenant/acme/agent/edge']) {
      using client = await port.grpc(id);
      await assert.rejects(client.admin.listSessions({}), /UNAVAILABLE/, id);
    }
  });

  test('what fails is told as failed', async () => {
    const drain = () => {
      throw new ServerError(13, 'it cannot');
    };
    await using port = await plane({ drain });
    using client = await port.client();
    await assert.rejects(client.admin.drain({}), /it cannot/);
    assert.deepEqual(
      port.operations.map(({ call, outcome }) => `${call} ${outcome}`),
      ['Drain failed'],
    );
  });

  test("an operator of a tenant sees that tenant's part on the console, and no more", async () => {
    await using port = await plane();
    const read = async (method: string, message: object = {}) => {
      const text = await port.ask({ method, message }, OPERATOR);
      assert.match(text, /^200 /);
      return JSON.parse(text.slice(4)) as { answer: Record<string, never[]>; error: { code: string; message: string } };
    };
    assert.match(await port.page('/console/', OPERATOR), /^200 <!doctype html>/);
    assert.match(await port.page('/console/settings.json', OPERATOR), /"tenant":"acme"/);
    assert.match(await port.page('/console/settings.json'), /"tenant":""/);
    const { answer } = await read('ListSessions');
    assert.deepEqual(
      answer.sessions?.map(({ sessionId }) => sessionId),
      ['mine'],
    );
    assert.equal((await read('ListTunnels', { tenant: 'beta' })).error.code, 'permission_denied');
    assert.match((await read('GetConfig')).error.message, /for operators of the plane/);
    const refused = port.operations.map(({ call, outcome }) => `${call} ${outcome}`);
    assert.deepEqual(refused, ['ListTunnels refused', 'GetConfig refused']);
  });

  test('a certificate of another role, or of a tenant that is gone, does not even get the page', async (t) => {
    using _ = stay(t);
    await using port = await plane();
    for (const id of [OPERATOR.replace('operator', 'agent'), OPERATOR.replace('acme', 'gone')]) {
      for (const path of ['/console/', '/console/console.js'])
        assert.match(await port.page(path, id), /^403 /, `${id} ${path}`);
      assert.match(await port.ask({ method: 'GetStatus' }, id), /^403 /, id);
    }
  });
});
