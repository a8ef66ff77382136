import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { ADMISSION } from '@isthmus/admission';
import { changed } from '@isthmus/runtime/testing';
import { SYNC } from './defaults.ts';
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
  writeFileSync(file('acme.one'), JSON.stringify({ tenant: 'one', source: { kind: 'Tenant', namespace, name } }));
  assert.deepEqual(await load(), ['acme.one']);
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

/** A sync in whose directory a namespace's files may take so many blocks: each tenant has one file. */
async function bounded(t: TestContext, blocks = 3) {
  const bounds = changed(SYNC, { namespaceFilesBytes: blocks * SYNC.blockBytes });
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-'));
  t.after(() => {
    bounds[Symbol.dispose]();
    rmSync(dir, { recursive: true });
  });
  const keys = new Map<string, string>();
  const objects = new Map<string, Source>();
  const told: string[] = [];
  /** Whose objects were asked for, and what is to happen when they are next. */
  const asked: string[] = [];
  const asking = new Map<string, () => void>();
  let now = 0;
  const start = async () => {
    const sync = new Sync({
      directory: new Directory(dir),
      stores(_store, name) {
        const key = keys.get(name);
        return key === undefined ? undefined : { values: new Map([['key', key]]), allows: [] };
      },
      sources(name) {
        asked.push(name);
        const act = asking.get(name);
        asking.delete(name);
        act?.();
        return [objects.get(name)].filter((each) => each !== undefined);
      },
      graceMs: 0,
      changed: (name, verdict) => void told.push(`${name} ${verdict?.fault ?? ''}`.trim()),
      now: () => now,
    });
    await sync.load();
    return sync;
  };
  let sync = await start();
  return {
    ...{ dir, told, asked, asking },
    put(name: string, key = newKey(), more: object = {}) {
      const [namespace = '', object = ''] = name.split('/');
      const secretRef = { name: object, key: 'key' };
      const fields = { agents: [{ tokens: { issuer: 'https://a', audience: 'b', keys: { secretRef } } }], ...more };
      keys.set(name, key);
      objects.set(name, { ...tenant(object), namespace, fields });
      sync.changed(name);
      return key;
    },
    remove(name: string) {
      const gone = objects.get(name);
      objects.delete(name);
      sync.changed(name, gone);
    },
    async flush(ms = 0) {
      now += ms;
      await sync.flush();
    },
    async restart() {
      sync = await start();
      for (const name of objects.keys()) sync.changed(name);
    },
    faults: () => Object.fromEntries([...sync.verdicts].map(({ source: { name }, fault }) => [name, fault])),
    folders: () => readdirSync(join(dir, '.files')).map((name) => name.replace(/\.[0-9a-f]+$/, '')),
    files: () => readdirSync(dir).filter((name) => name.endsWith('.yaml')),
  };
}

test('what has no place keeps nobody from what it claims', async (t) => {
  using _bounds = changed(SYNC, { namespaceTenants: 1 });
  const { put, flush, faults } = await bounded(t);
  put('evil/own');
  await flush();
  const key = put('evil/none');
  await flush();
  put('victim/prod', key);
  for (let times = 0; times < 2; times++) await flush();
  const { none, prod } = faults();
  assert.match(`${none}`, /^its namespace has 1 tenants$/);
  assert.equal(prod, undefined);
});

test('what gets no place any more, because others have it, keeps nobody from what it claims for longer', async (t) => {
  const { put, flush, faults } = await bounded(t);
  for (const name of ['one', 'three', 'two', 'zero']) put(`evil/${name}`);
  const key = put('evil/zero');
  put('victim/prod', key);
  for (let times = 0; times < 2; times++) await flush();
  const { zero, prod } = faults();
  assert.match(`${zero}`, FULL);
  assert.equal(prod, undefined);
});

test('what cannot be written, because another has what it claims, takes no room', async (t) => {
  const { put, flush, faults } = await bounded(t);
  const key = put('other/own');
  await flush();
  for (const name of ['a', 'b', 'c']) put(`acme/${name}`, key);
  await flush();
  put('acme/prod');
  await flush();
  assert.match(`${faults().a}`, /is in other\.own too/);
  assert.equal(faults().prod, undefined);
});

test('what has no place is judged again only once something was removed', async (t) => {
  const { put, flush, faults, remove, asked } = await bounded(t);
  for (const name of ['a', 'b', 'c', 'd']) put(`acme/${name}`);
  for (let times = 0; times < 2; times++) await flush();
  assert.match(`${faults().d}`, FULL);
  asked.length = 0;
  await flush();
  assert.deepEqual(asked, []);
  remove('acme/a');
  for (let times = 0; times < 4; times++) await flush(SYNC.oldFilesMs);
  assert.equal(faults().d, undefined);
});

test('what another has is judged again only once something has changed', async (t) => {
  const { put, flush, faults, remove, asked } = await bounded(t);
  const key = put('other/own');
  await flush();
  for (const name of ['a', 'b']) put(`acme/${name}`, key);
  for (let times = 0; times < 2; times++) await flush();
  assert.match(`${faults().b}`, /is in other\.own too/);
  asked.length = 0;
  await flush();
  assert.deepEqual(asked, []);
  remove('other/own');
  await flush();
  assert.equal(faults().a, undefined);
  remove('acme/a');
  await flush();
  assert.equal(faults().b, undefined);
});

test("a namespace's files take as much room after a restart as before", async (t) => {
  const { put, flush, faults, restart } = await bounded(t);
  for (const name of ['one', 'two']) put(`acme/${name}`);
  await flush();
  await restart();
  put('acme/one');
  await flush();
  assert.deepEqual(faults(), { one: undefined, two: undefined });
});

test('what changes meanwhile is written before all that a namespace has due, and what is new at once', async (t) => {
  using _round = changed(SYNC, { tenantsARound: 2 });
  const { put, flush, told, asking } = await bounded(t, 32);
  const names = ['a', 'b', 'c', 'd', 'e'].map((name) => `acme/${name}`);
  for (const name of names) put(name);
  put('other/prod');
  await flush();
  assert.equal(told.length, 6);
  told.length = 0;
  for (const name of names) put(name);
  asking.set('acme/a', () => void put('other/prod'));
  await flush();
  assert.deepEqual(told, [...names.slice(0, 4), 'other/prod', 'acme/e']);
});

test('what goes while another is composed leaves no file', async (t) => {
  const { put, flush, files, remove, asking } = await bounded(t);
  for (const name of ['one', 'two']) put(`acme/${name}`);
  asking.set('acme/two', () => remove('acme/one'));
  for (let times = 0; times < 2; times++) await flush();
  assert.deepEqual(files(), ['acme.two.yaml']);
});

function newKey(): string {
  const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return publicKey.export({ type: 'spki', format: 'pem' }).toString();
}

const FULL = /^the files of all tenants of its namespace would take more than 12288 bytes/;

test('nothing is written of an object that is refused', async (t) => {
  const { put, flush, folders, faults } = await bounded(t);
  put('acme/broken', 'no key');
  put('acme/prod');
  await flush();
  assert.match(`${faults().broken}`, /agents\[0\]\.tokens\.keys/);
  assert.deepEqual(folders(), ['acme.prod']);
});

test("the files of a namespace's tenants take no more than its share, also those that are old, and others have theirs", async (t) => {
  const { put, flush, folders, faults, restart, told } = await bounded(t);
  const refused = () =>
    Object.keys(faults())
      .filter((name) => FULL.test(`${faults()[name]}`))
      .sort();
  for (const name of ['acme/one', 'acme/two', 'acme/three', 'acme/four', 'other/own']) put(name);
  await flush();
  assert.deepEqual(refused(), ['two']);
  assert.deepEqual(folders().sort(), ['acme.four', 'acme.one', 'acme.three', 'other.own']);
  const before = told.length;
  await flush();
  assert.equal(told.length, before);
  put('acme/one');
  await flush();
  assert.deepEqual(refused(), ['one', 'two']);
  await restart();
  await flush();
  assert.deepEqual(refused(), ['one', 'two']);
});

test('a tenant whose new files have no room keeps its old ones, and what it claims, until older files are gone', async (t) => {
  const { put, flush, faults } = await bounded(t);
  let key = '';
  for (let times = 0; times < 3; times++) {
    key = put('acme/one');
    await flush();
  }
  put('acme/one');
  await flush();
  assert.match(`${faults().one}`, FULL);
  put('other/thief', key);
  await flush();
  assert.match(`${faults().thief}`, /token key .* is in acme\.one too/);
  for (let times = 0; times < 3; times++) await flush(SYNC.oldFilesMs);
  assert.deepEqual(faults(), { one: undefined, thief: undefined });
});

test('a text that looks like a folder of files keeps none of them, and has nothing written again', async (t) => {
  const { put, flush, folders, told, dir } = await bounded(t);
  put('acme/prod');
  await flush();
  const names = ['none', ...readdirSync(join(dir, '.files'))].map((name) => `.files/${name}/x`);
  put('evil/own', newKey(), { dial: { allow: names.map((name) => ({ name, cidr: '10.0.0.0/8' })) } });
  put('acme/prod');
  for (let times = 0; times < 2; times++) await flush();
  assert.deepEqual(told, ['acme/prod', 'acme/prod', 'evil/own']);
  for (let times = 0; times < 2; times++) await flush(SYNC.oldFilesMs);
  assert.deepEqual(folders().sort(), ['acme.prod', 'evil.own']);
});

test("somebody's copy of a tenant's file is no file of the sync's: it is not put back", async (t) => {
  const { put, flush, restart, dir, files, faults } = await bounded(t);
  put('acme/prod');
  await flush();
  const copy = join(dir, 'acme.prod-old.yaml');
  copyFileSync(join(dir, 'acme.prod.yaml'), copy);
  await restart();
  await flush();
  assert.deepEqual(faults(), { prod: undefined });
  rmSync(copy);
  await flush();
  assert.deepEqual(files(), ['acme.prod.yaml']);
});

test('a namespace has no more tenants than its part of what members read, all have no more than that, and who has one keeps it', async (t) => {
  using _bounds = changed(SYNC, { namespaceTenants: 2 });
  using _members = changed(ADMISSION, { tenantFiles: 3 });
  const { put, flush, faults, files, restart, remove } = await bounded(t, 32);
  put('z/first');
  await flush();
  for (const name of ['a/one', 'a/two', 'a/three', 'b/four', 'c/five']) put(name);
  for (let times = 0; times < 2; times++) await flush();
  const { one, two, three, four, five, first } = faults();
  assert.deepEqual([one, three, first], [undefined, undefined, undefined]);
  assert.match(`${two}`, /^its namespace has 2 tenants$/);
  for (const fault of [four, five]) assert.match(`${fault}`, /^there are 3 tenants, and members read no more$/);
  assert.deepEqual(files(), ['a.one.yaml', 'a.three.yaml', 'z.first.yaml']);
  await restart();
  for (let times = 0; times < 2; times++) await flush();
  assert.deepEqual(files(), ['a.one.yaml', 'a.three.yaml', 'z.first.yaml']);
  remove('z/first');
  for (let times = 0; times < 2; times++) await flush();
  assert.deepEqual(files(), ['a.one.yaml', 'a.three.yaml', 'b.four.yaml']);
});
