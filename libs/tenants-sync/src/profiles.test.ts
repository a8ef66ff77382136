import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { type KubeClient, KubeStatusError } from '@isthmus/kube';
import { SYNC } from './defaults.ts';
import { ProfileWriter } from './profiles.ts';
import { statusOf, type ToldStatus } from './status.ts';
import type { Verdict } from './sync.ts';

const PATH = '/apis/multicluster.x-k8s.io/v1alpha2/namespaces/acme/clusterprofiles';

const verdict = (name: string): Verdict => ({
  source: { kind: 'Tenant', namespace: 'acme', name, created: 0, generation: 1, atOnce: false, fields: {} },
  ...{ tenant: `acme-${name}`, from: 'Tenant', fault: undefined, kept: true, writtenAt: 0 },
  profile: { secret: `${name}-plane-access`, token: 'token', ca: 'CA', serverName: undefined },
});

/** The status of a `Tenant` of which a ClusterProfile was published. */
const PUBLISHED: ToldStatus = {
  version: '1',
  status: statusOf(verdict(''), { access: 'published' }, {}, ''),
};

interface Stored {
  metadata: { uid: string; resourceVersion: string; ownerReferences?: { uid: string }[] };
  status?: { accessProviders: { name: string; cluster?: object }[] };
}

interface Sent {
  metadata: { name: string; resourceVersion?: string };
  preconditions?: { resourceVersion?: string };
  status: Stored['status'];
}

interface Call {
  method: string;
  path: string;
  body?: Sent;
}

describe('ClusterProfiles', () => {
  /** By name: what the API server has. */
  let stored: Map<string, Stored>;
  let calls: string[];
  let leads: boolean;
  let failures: string[];
  /** Objects that the API server lacks. */
  let gone: Set<string>;
  let writer: ProfileWriter;
  /** Called before a call arrives. */
  let arrives: (call: string) => void;

  /** As much of an API server as they need. */
  async function request({ method, path, body }: Call): Promise<unknown> {
    if (path === '/apis/multicluster.x-k8s.io') return { versions: [{ version: 'v1alpha2' }] };
    const name = path.slice(PATH.length + 1).split('/')[0] as string;
    calls.push(`${method} ${name}`.trim());
    arrives(`${method} ${name}`.trim());
    const at = body?.metadata?.name ?? name;
    if (method === 'POST') stored.set(at, { metadata: { uid: at, resourceVersion: '1' } });
    const found = stored.get(at);
    if (!found) throw new KubeStatusError('not found', 404, 'NotFound');
    const { resourceVersion } = body?.metadata ?? body?.preconditions ?? {};
    if (resourceVersion !== undefined && resourceVersion !== found.metadata.resourceVersion)
      throw new KubeStatusError('modified', 409, 'Conflict');
    if (method === 'DELETE') stored.delete(at);
    if (method === 'MERGE') provided(at, body?.status);
    return structuredClone(stored.get(at));
  }

  function provided(name: string, status: Stored['status']): void {
    const { metadata } = stored.get(name) as Stored;
    const resourceVersion = String(Number(metadata.resourceVersion) + 1);
    stored.set(name, { metadata: { ...metadata, resourceVersion }, ...(status && { status }) });
  }

  beforeEach(() => {
    [stored, calls, leads, arrives, failures, gone] = [new Map(), [], true, () => {}, [], new Set()];
    writer = new ProfileWriter({
      ...{ client: { request } as unknown as KubeClient, plane: 'isthmus', leads: () => leads },
      known: (name) => (gone.has(name) ? undefined : PUBLISHED),
      proxy: { url: 'https://gateways.example:8090', ca: () => '' },
      failed: (_name, error) => void (error && failures.push(error.message)),
    });
  });

  const write = (now: number, ...names: string[]) =>
    writer.write(names.map(verdict), now, new AbortController().signal);

  it('are written once, and are as they were again after somebody has changed or removed them', async () => {
    await write(0, 'one', 'two');
    assert.deepEqual(calls.splice(0), ['GET one', 'POST', 'MERGE one', 'GET two', 'POST', 'MERGE two']);
    const statuses = () => [...stored].map(([name, { status }]) => ({ name, status }));
    const written = statuses();
    stored.delete('one');
    const two = stored.get('two') as Stored;
    two.status = { accessProviders: [{ name: 'isthmus', cluster: { server: 'https://evil.example' } }] };
    await write(SYNC.profileMs, 'one', 'two');
    assert.deepEqual(statuses().reverse(), written);
    calls.length = 0;
    await write(2 * SYNC.profileMs, 'one', 'two');
    assert.deepEqual(calls, ['GET one', 'GET two']);
  });

  it('of a thousand are looked at in turns, each in 500 s', async () => {
    const names = Array.from({ length: 1000 }, (_, index) => `t-${index}`);
    await write(0, ...names);
    let most = 0;
    const looked = new Set<string>();
    for (let now = SYNC.statusMs; now <= 1000 * SYNC.profileLookMs; now += SYNC.statusMs) {
      calls.length = 0;
      await write(now, ...names);
      most = Math.max(most, calls.length);
      for (const call of calls) looked.add(call);
    }
    assert.equal(looked.size, 1000);
    // On average 20 in 10 s.
    assert.ok(most < 60, `${most} calls in 10 s`);
  });

  it('are left alone as soon as another sync leads', async () => {
    const led = write(0, 'one', 'two');
    leads = false;
    await led;
    assert.deepEqual(calls, ['GET one']);
  });

  it('stay as another sync has made them before a write of this one arrives', async () => {
    await write(0, 'one');
    const { profile, ...asks } = verdict('one');
    const changes = profile && { ...asks, profile: { ...profile, ca: 'another CA' } };
    const ends = { ...asks, source: { ...asks.source, uid: 'owner' }, profile: undefined };
    const other = { accessProviders: [{ name: 'isthmus', cluster: { server: 'https://later.example' } }] };
    arrives = (call) => void (/^(MERGE|DELETE)/.test(call) && provided('one', other));
    calls.length = 0;
    for (const [late, owner] of [[changes, ''] as const, [ends, ''] as const, [ends, 'owner'] as const]) {
      (stored.get('one') as Stored).metadata.ownerReferences = [{ uid: owner }];
      await writer.write(late ? [late] : [], 1, new AbortController().signal);
      assert.deepEqual(stored.get('one')?.status, other);
    }
    assert.deepEqual(calls, ['GET one', 'MERGE one', 'GET one', 'MERGE one', 'GET one', 'DELETE one']);
    // The next round looks again, so nothing is wrong that anybody should know.
    assert.deepEqual([failures, writer.access('acme/one')], [[], 'published']);
    await writer.write([changes as Verdict], 2, new AbortController().signal);
    assert.deepEqual(calls.slice(6), ['GET one', 'MERGE one']);
  });

  it('of an object that the API server lacks are left alone, though its tenant stays', async () => {
    gone.add('acme/one');
    await write(0, 'one', 'two');
    assert.deepEqual(calls, ['GET two', 'POST', 'MERGE two']);
  });

  it('keep the entries of other managers, which have those of theirs that are changed', async () => {
    const other = { name: 'other', cluster: { server: 'https://other.example' } };
    const taken = { name: 'isthmus', cluster: { server: 'https://evil.example' } };
    stored.set('one', {
      metadata: { uid: 'theirs', resourceVersion: '1' },
      status: { accessProviders: [taken, other] },
    });
    await write(0, 'one');
    const [first, second] = stored.get('one')?.status?.accessProviders ?? [];
    assert.deepEqual([first, second?.name, failures], [other, 'isthmus', []]);
    assert.doesNotMatch(JSON.stringify(second), /evil/);
    const { profile: _, ...ends } = verdict('one');
    await writer.write([ends], 1, new AbortController().signal);
    assert.deepEqual(stored.get('one')?.status?.accessProviders, [other]);
  });

  it('that were made late, when another sync leads, are removed, unless that one has made them its own', async () => {
    for (const [name, own] of [['one', false] as const, ['two', true] as const]) {
      leads = true;
      arrives = (call) => {
        if (call === 'POST') leads = false;
        if (own && call.startsWith('DELETE')) provided(name, { accessProviders: [] });
      };
      await write(0, name);
    }
    assert.deepEqual(calls, ['GET one', 'POST', 'DELETE one', 'GET two', 'POST', 'DELETE two']);
    assert.deepEqual([[...stored.keys()], failures], [['two'], []]);
  });
});
