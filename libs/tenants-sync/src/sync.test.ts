import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { ADMISSION } from '@isthmus/admission';
import { Directory } from './directory.ts';
import type { Source } from './kinds.ts';
import { Sync } from './sync.ts';

function tenant(name: string): Source {
  return { kind: 'Tenant', namespace: 'acme', name, created: 0, generation: 1, atOnce: true, fields: {} };
}

test('a file that cannot be removed is tried again, and holds up no other', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-'));
  t.after(() => rmSync(dir, { recursive: true }));
  const objects = new Map([tenant('one'), tenant('two')].map((each) => [`acme/${each.name}`, each]));
  const sync = new Sync({
    directory: new Directory(dir),
    stores: () => undefined,
    sources: (name) => [objects.get(name)].filter((each) => each !== undefined),
    graceMs: 0,
    changed: () => {},
    now: () => 0,
  });
  const files = () => readdirSync(dir).filter((name) => name.endsWith('.yaml'));
  for (const name of objects.keys()) sync.changed(name);
  await sync.flush();
  const [one, two] = files() as [string, string];
  assert.deepEqual([[...sync.verdicts].map(({ fault }) => fault), files().length], [[undefined, undefined], 2]);

  // A folder with something in it, which a file's removal leaves.
  rmSync(join(dir, one));
  mkdirSync(join(dir, one, 'in the way'), { recursive: true });
  const gone = [...objects.values()];
  objects.clear();
  for (const source of gone) sync.changed(`acme/${source.name}`, source);
  objects.set('acme/three', tenant('three'));
  sync.changed('acme/three');
  await assert.rejects(sync.flush(), /directory/);
  assert.deepEqual(files().includes(two), false);
  assert.equal(files().length, 2);

  rmSync(join(dir, one), { recursive: true });
  await sync.flush();
  assert.equal(files().length, 1);
});

test('what lies there is no file of a tenant, or must be read', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-'));
  t.after(() => rmSync(dir, { recursive: true }));
  const load = async () => {
    const bases: string[] = [];
    for await (const { base } of new Directory(dir).load()) bases.push(base);
    return bases;
  };
  const file = (name: string) => join(dir, `${name}.yaml`);
  mkdirSync(file('directory'));
  symlinkSync('/dev/null', file('device'));
  symlinkSync('nowhere', file('gone'));
  writeFileSync(file('large'), 'x'.repeat(ADMISSION.tenantFileBytes + 1));
  const { namespace, name } = tenant('one');
  writeFileSync(file('ours'), JSON.stringify({ tenant: 'one', source: { kind: 'Tenant', namespace, name } }));
  assert.deepEqual(await load(), ['ours']);
  symlinkSync('loop.yaml', file('loop'));
  await assert.rejects(load(), { code: 'ELOOP' });
});

test('an object whose kubeconfig leads nowhere is refused', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-'));
  t.after(() => rmSync(dir, { recursive: true }));
  const secretRef = { name: 'reviewer', key: 'config' };
  const fields = { agents: [{ tokenReview: { kubeconfig: { secretRef } } }] };
  const config = '{clusters: [{name: c, cluster: {server: "https://a"}}], users: [{name: u, user: {token: x}}]}';
  const sync = new Sync({
    directory: new Directory(dir),
    stores: () => ({ values: new Map([['config', config]]), allows: [] }),
    sources: () => [{ ...tenant('one'), fields }],
    graceMs: 0,
    changed: () => {},
    now: () => 0,
  });
  sync.changed('acme/one');
  await sync.flush();
  assert.match([...sync.verdicts][0]?.fault ?? '', /the file has no current-context/);
  assert.deepEqual(readdirSync(dir), ['.files']);
});

test('a verdict says since when the file lies there, whatever its object says', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-'));
  t.after(() => rmSync(dir, { recursive: true }));
  let at = 1;
  let object = tenant('one');
  const sync = new Sync({
    directory: new Directory(dir),
    stores: () => undefined,
    sources: () => [object],
    graceMs: 0,
    changed: () => {},
    now: () => at,
  });
  const judged = async (now: number, generation: number, fields: Source['fields']) => {
    at = now;
    object = { ...object, generation, fields };
    sync.changed('acme/one');
    await sync.flush();
    return [...sync.verdicts].map(({ source, fault, writtenAt }) => [
      source.generation,
      fault !== undefined,
      writtenAt,
    ])[0];
  };
  const limits = { tunnels: 5 };
  assert.deepEqual(await judged(1, 1, {}), [1, false, 1]);
  assert.deepEqual(await judged(2, 2, { limits }), [2, false, 2]);
  assert.deepEqual(await judged(3, 3, { limits: 'none' }), [3, true, 2]);
  assert.deepEqual(await judged(4, 4, { limits }), [4, false, 2]);
});
