import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type KubeClient, KubeStatusError } from '@isthmus/kube';
import { SYNC } from './defaults.ts';
import { connectedIn, faultsIn } from './member.ts';
import { countedStatus, StatusWriter, statusOf, type TenantStatus } from './status.ts';
import type { Verdict } from './sync.ts';

const verdict = (more: Partial<Verdict> = {}): Verdict => ({
  source: { kind: 'Tenant', namespace: 'acme', name: 'prod', created: 0, generation: 3, atOnce: false, fields: {} },
  tenant: 'acme-prod',
  from: 'Tenant',
  fault: undefined,
  kept: false,
  writtenAt: 0,
  ...more,
});

const conditions = ({ conditions = [] }: TenantStatus) =>
  Object.fromEntries(
    conditions.map(({ type, status, lastTransitionTime }) => [type, `${status} ${lastTransitionTime}`]),
  );

describe('the status of a Tenant', () => {
  const two = { agents: 2, sessions: 4, hubs: 2, callers: 1 };

  it('says what is in force, and who is connected', () => {
    const status = statusOf(verdict(), { connected: two }, {}, '1');
    assert.deepEqual(conditions(status), { Accepted: 'True 1', Connected: 'True 1' });
    assert.deepEqual([status.from, status.agents, status.hubs, status.observedGeneration], ['Tenant', 2, 2, 3]);
  });

  it('keeps the time of a condition that stays, and what is connected while no member answers', () => {
    const before = statusOf(verdict(), { connected: two }, {}, '1');
    const after = statusOf(verdict({ fault: 'agents[0]: x', kept: true }), {}, before, '2');
    assert.deepEqual(conditions(after), { Accepted: 'False 2', Connected: 'True 1' });
    assert.equal(after.agents, 2);
    assert.equal(after.conditions?.[0]?.message, 'agents[0]: x. The last good state stays in force');
  });

  it('says what members refuse of a spec that passes the check, and while none answers, what they said of this spec', () => {
    const fault =
      'acme.prod.yaml: agents[0].port: agents of tenant acme-prod cannot connect to its port 9132 (at hub-1)';
    const refused = statusOf(verdict(), { connected: two, fault }, {}, '1');
    assert.deepEqual(conditions(refused), { Accepted: 'False 1', Connected: 'True 1' });
    assert.equal(refused.conditions?.[0]?.message, fault);
    assert.equal(conditions(statusOf(verdict(), {}, refused, '2')).Accepted, 'False 1');
    assert.equal(conditions(statusOf(verdict(), { connected: two, fault: '' }, refused, '2')).Accepted, 'True 2');
    const { source } = verdict();
    const next = verdict({ source: { ...source, generation: 4 } });
    assert.equal(conditions(statusOf(next, {}, refused, '2')).Accepted, 'True 2');
    const own = statusOf(verdict({ fault: 'agents[0]: x' }), { connected: two, fault }, {}, '1');
    assert.equal(own.conditions?.[0]?.message, 'agents[0]: x');
  });

  it('does not know who is connected before a member has answered', () => {
    assert.deepEqual(conditions(statusOf(verdict(), {}, {}, '1')), {
      Accepted: 'True 1',
      Connected: 'Unknown 1',
    });
  });

  it('says what became of its ClusterProfile, until it has none', () => {
    const failed = statusOf(verdict(), { access: { fault: 'forbidden' } }, {}, '1');
    assert.deepEqual(conditions(failed), { Accepted: 'True 1', Connected: 'Unknown 1', Published: 'False 1' });
    assert.equal(failed.conditions?.at(-1)?.message, 'forbidden');
    const published = statusOf(verdict(), { access: 'published' }, failed, '2');
    assert.equal(conditions(statusOf(verdict(), {}, published, '3')).Published, 'True 2');
    assert.equal(conditions(statusOf(verdict(), { access: 'none' }, published, '3')).Published, undefined);
  });

  it('leaves what others say', () => {
    const other = {
      type: 'Later',
      status: 'True',
      reason: 'x',
      message: '',
      observedGeneration: 1,
      lastTransitionTime: '0',
    } as const;
    const before = { conditions: [other], later: 'x' } as TenantStatus;
    const status = statusOf(verdict(), {}, before, '1');
    assert.deepEqual(conditions(status), { Accepted: 'True 1', Connected: 'Unknown 1', Later: 'True 0' });
    assert.deepEqual(statusOf(verdict(), {}, status, '2'), status);
    assert.equal((status as { later?: string }).later, 'x');
  });
});

describe('the writer of statuses', () => {
  it('says of a file what members said once they had it, and of what they said before nothing', async () => {
    const faults = new Map([['acme.prod.yaml', 'acme.prod.yaml: agents[0].port: port 9132: EADDRINUSE']]);
    const { source } = verdict();
    let status: TenantStatus = {};
    const request = async ({ body }: { body: { status: TenantStatus } }) => {
      ({ status } = body);
      return { status };
    };
    const writer = new StatusWriter({
      client: { request } as unknown as KubeClient,
      ...{ known: () => ({ status, version: '1' }), access: () => undefined, leads: () => true },
      failed: (_name, error) => assert.fail(error),
    });
    const accepted = async (generation: number, writtenAt: number, askedAt: number) => {
      const plane = { askedAt, connected: new Map(), faults };
      const mended = verdict({ source: { ...source, generation }, writtenAt });
      await writer.write([mended], plane, new AbortController().signal);
      return status.conditions?.map(
        ({ type, reason, observedGeneration }) => `${type} ${reason} ${observedGeneration}`,
      )[0];
    };
    const asked = 100_000;
    assert.equal(await accepted(3, 0, asked), 'Accepted AtMembers 3');
    assert.equal(await accepted(4, asked + 1, asked), 'Accepted InForce 4');
    assert.equal(await accepted(4, asked + 1, asked + SYNC.inForceMs), 'Accepted InForce 4');
    assert.equal(await accepted(4, asked + 1, asked + SYNC.inForceMs + 1), 'Accepted AtMembers 4');
    // A secret that it names has changed, and what members said of the spec stays until they know.
    faults.clear();
    assert.equal(await accepted(4, 2 * asked, 2 * asked), 'Accepted AtMembers 4');
    assert.equal(await accepted(4, 2 * asked, 2 * asked + SYNC.inForceMs), 'Accepted InForce 4');
  });

  it('says who is connected to the tenant of its own file, and to none that another file is', async () => {
    const written = new Map<string, TenantStatus>();
    const request = async ({ path, body }: { path: string; body: { status: TenantStatus } }) => {
      written.set(path.split('/').at(-2) ?? '', body.status);
      return { status: body.status };
    };
    const writer = new StatusWriter({
      client: { request } as unknown as KubeClient,
      ...{ known: () => ({ status: {}, version: '1' }), access: () => undefined, leads: () => true },
      failed: (_name, error) => assert.fail(error),
    });
    const victim = { name: 'victim', file: 'acme.prod.yaml', agents: 3, sessions: 6, callers: ['a'] };
    const answer = { tenants: [victim] };
    const connected = connectedIn([{ member: { id: 'server', roles: ['gateway', 'hub'] }, answer }]);
    const named = (name: string, fault?: string) =>
      verdict({ source: { ...verdict().source, name }, tenant: 'victim', fault });
    // One is refused by the sync, one only by members, because somebody else has written the file of the other tenant.
    const verdicts = [named('prod'), named('spy', 'tenant: tenant victim is in acme.prod too'), named('late')];
    await writer.write(verdicts, { askedAt: 100_000, connected, faults: new Map() }, new AbortController().signal);
    assert.deepEqual(
      ['prod', 'spy', 'late'].map((name) => written.get(name)?.agents),
      [3, 0, 0],
    );
  });

  it('takes back what others wrote of it, where that is too long to count, and writes it once', async () => {
    const conditions = [{ type: 'Connected', message: 'x'.repeat(SYNC.statusCharacters) }];
    let status = { tenant: 'x'.repeat(1_000_000), agents: 7, conditions } as unknown as TenantStatus;
    let writes = 0;
    const request = async ({ body }: { body: { status: TenantStatus } }) => {
      writes++;
      const merged = Object.entries({ ...status, ...body.status }).filter(([, value]) => value !== null);
      status = Object.fromEntries(merged);
      return { status };
    };
    const writer = new StatusWriter({
      client: { request } as unknown as KubeClient,
      ...{ known: () => ({ status: countedStatus(status), version: '1' }), access: () => undefined, leads: () => true },
      failed: (_name, error) => assert.fail(error),
    });
    const { signal } = new AbortController();
    for (let times = 0; times < 2; times++)
      await writer.write([verdict({ tenant: '', fault: 'x' })], undefined, signal);
    assert.deepEqual([status.tenant, status.agents, writes], [undefined, undefined, 1]);
  });

  it('writes none more as soon as another sync leads', async () => {
    let leads = true;
    const written: string[] = [];
    const request = async ({ path, body }: { path: string; body: { status: object } }) => {
      written.push(path);
      leads = false;
      return { status: body.status };
    };
    const writer = new StatusWriter({
      client: { request } as unknown as KubeClient,
      ...{ known: () => ({ status: {}, version: '1' }), access: () => undefined, leads: () => leads },
      failed: (_name, error) => assert.fail(error),
    });
    const { source } = verdict();
    const verdicts = Array.from({ length: 100 }, (_, index) => verdict({ source: { ...source, name: `t-${index}` } }));
    await writer.write(verdicts, undefined, new AbortController().signal);
    assert.ok(written.length <= SYNC.statusesAtOnce, `${written.length} were written`);
  });

  it('changes nothing by a write that comes after one of the sync that leads now, and fails in nothing', async () => {
    const object = { status: {} as TenantStatus, version: 1 };
    const held = Promise.withResolvers<void>();
    const writerOf = (arrives: Promise<void>) => {
      const request = async ({ body }: { body: { metadata: { resourceVersion?: string }; status: TenantStatus } }) => {
        await arrives;
        const { resourceVersion = String(object.version) } = body.metadata;
        if (resourceVersion !== String(object.version)) throw new KubeStatusError('modified', 409, 'Conflict');
        Object.assign(object, { status: body.status, version: object.version + 1 });
        return { status: body.status };
      };
      return new StatusWriter({
        client: { request } as unknown as KubeClient,
        known: () => ({ status: object.status, version: String(object.version) }),
        ...{ access: () => undefined, leads: () => true },
        failed: (_name, error) => assert.fail(error),
      });
    };
    const { signal } = new AbortController();
    const late = writerOf(held.promise).write([verdict({ fault: 'what was wrong before' })], undefined, signal);
    await writerOf(Promise.resolve()).write([verdict()], undefined, signal);
    held.resolve();
    await late;
    assert.equal(conditions(object.status).Accepted?.split(' ')[0], 'True');
    assert.equal(object.version, 2);
  });
});

describe("members' answers", () => {
  const line = (
    roles: string[],
    ...tenants: [name: string, agents: number, sessions: number, callers?: string[]][]
  ) => ({
    member: { id: roles.join(), roles },
    answer: {
      tenants: tenants.map(([name, agents, sessions, callers = []]) => ({
        ...{ name, file: `${name}.yaml`, agents, sessions, callers },
      })),
    },
  });

  it('are one: a gateway knows all sessions, and a hub has its own', () => {
    const found = connectedIn([
      line(['gateway'], ['acme', 2, 4, ['a', 'b']]),
      line(['gateway'], ['acme', 2, 3]),
      line(['hub'], ['acme', 2, 2]),
      line(['hub'], ['acme', 2, 2], ['globex', 0, 0]),
    ]);
    assert.deepEqual(found.get('acme.yaml'), { agents: 2, sessions: 4, hubs: 2, callers: 2 });
    assert.deepEqual(found.get('globex.yaml'), { agents: 0, sessions: 0, hubs: 0, callers: 0 });
  });

  it('of hubs alone are added up', () => {
    const found = connectedIn([
      line(['hub'], ['acme', 1, 1]),
      line(['hub'], ['acme', 1, 1]),
      { member: { id: 'hub-3', roles: ['hub'] } },
    ]);
    assert.deepEqual(found.get('acme.yaml'), { agents: 2, sessions: 2, hubs: 2, callers: 0 });
  });

  it('of nobody are none', () => {
    assert.throws(() => connectedIn([{ member: { id: 'hub', roles: ['hub'] } }]), /no member answered/);
  });

  it('name what is wrong with a file where they are, by the file, in whatever order they come', () => {
    const closed = 'acme.prod.yaml: agents[0].port: agents of tenant acme cannot connect to its port 9132: EADDRINUSE';
    const named = { file: 'acme.prod.yaml', line: 4, message: 'apiServer.names[0]: hub is a name of the hubs' };
    const ofSync = { file: 'Tenant acme/other', message: 'agents[0]: there is no secret acme/other' };
    const at = (id: string, answer: object) => ({ member: { id, roles: ['hub'] }, answer });
    const lines = [
      at('hub-2', { problems: [named, ofSync], unopened: [closed] }),
      at('hub-1', { problems: [named] }),
      { member: { id: 'hub-3', roles: ['hub'] } },
    ];
    const found = faultsIn(lines);
    assert.equal(
      found.get('acme.prod.yaml'),
      `${closed} (at hub-2); acme.prod.yaml:4: apiServer.names[0]: hub is a name of the hubs (at hub-1, hub-2)`,
    );
    assert.equal(found.get('acme.other.yaml'), undefined);
    assert.equal(
      found.get('Tenant acme/other'),
      'Tenant acme/other: agents[0]: there is no secret acme/other (at hub-2)',
    );
    assert.deepEqual([...faultsIn([...lines].reverse())].sort(), [...found].sort());
  });
});
