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
  status?: { accessProviders: object[] };
}

interface Sent {
  metadata: { name: string; resourceVersion?: string };
  preconditions?: { resourceVersion?: string };
  status: Stored['status'];
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
  async function request({ method, path, body }: { method: string; path: string; body?: Sent }): Promise<unknown> {
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
    if (method === 'PATCH') provided(at, body?.status);
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
    assert.deepEqual(calls.splice(0), ['GET one', 'POST', 'PATCH one', 'GET two', 'POST', 'PATCH two']);
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
    assert.deepEqual(calls, ['GET one', 'POST', 'PATCH one']);
  });

  it('stay as another sync has made them before a write of this one arrives', async () => {
    await write(0, 'one');
    const { profile, ...asks } = verdict('one');
    const changes = profile && { ...asks, profile: { ...profile, ca: 'another CA' } };
    const ends = { ...asks, source: { ...asks.source, uid: 'owner' }, profile: undefined };
    const other = { accessProviders: [{ name: 'isthmus', cluster: { server: 'https://later.example' } }] };
    arrives = (call) => void (/^(PATCH|DELETE)/.test(call) && provided('one', other));
    calls.length = 0;
    for (const [late, owner] of [[changes, ''] as const, [ends, ''] as const, [ends, 'owner'] as const]) {
      (stored.get('one') as Stored).metadata.ownerReferences = [{ uid: owner }];
      await writer.write(late ? [late] : [], 1, new AbortController().signal);
      assert.deepEqual(stored.get('one')?.status, other);
    }
    assert.deepEqual(calls, ['GET one', 'PATCH one', 'GET one', 'PATCH one', 'GET one', 'DELETE one']);
    // The next round looks again, so nothing is wrong that anybody should know.
    assert.deepEqual([failures, writer.access('acme/one')], [[], 'published']);
    await writer.write([changes as Verdict], 2, new AbortController().signal);
    assert.deepEqual(calls.slice(6), ['GET one', 'PATCH one']);
  });

  it('of an object that the API server lacks are left alone, though its tenant stays', async () => {
    gone.add('acme/one');
    await write(0, 'one', 'two');
    assert.deepEqual(calls, ['GET two', 'POST', 'PATCH two']);
  });

  it('of which another manager owns what this one says are a fault, because the next round finds the same', async () => {
    const message = 'Apply failed with 1 conflict: conflict with "kubectl-edit": .status.accessProviders';
    arrives = (call) => {
      if (call.startsWith('PATCH')) throw new KubeStatusError(message, 409, 'Conflict');
    };
    await write(0, 'one');
    assert.deepEqual([failures, writer.access('acme/one')], [[message], { fault: message }]);
  });
});
