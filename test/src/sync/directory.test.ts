import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { ADMISSION, startAdmission } from '@isthmus/admission';
import { changed } from '@isthmus/runtime/testing';
import { Directory, Sync } from '@isthmus/tenants-sync';
import { planeEvents } from '@isthmus/tunnel';
import { type Scope, scoped, tempDir, until } from '../harness/index.ts';

type Source = ReturnType<ConstructorParameters<typeof Sync>[0]['sources']>[number];

/** A sync of objects that a test puts there, and a member that reads its directory. */
async function synced(scope: Scope) {
  const dir = await tempDir(scope);
  const objects = new Map<string, Source[]>();
  const faults = new Map<string, string | undefined>();
  /** The tenant of which an earlier state is in force. */
  const kept = new Map<string, string>();
  const told: string[] = [];
  let now = 0;
  const start = async () => {
    const sync = new Sync({
      directory: new Directory(dir),
      stores: () => undefined,
      sources: (name) => objects.get(name) ?? [],
      graceMs: 1000,
      now: () => now,
      changed(name, verdict) {
        faults.set(name, verdict?.fault);
        if (verdict?.fault !== undefined && verdict.kept) kept.set(name, verdict.tenant);
        told.push(`${name} ${/^[^:]*: E[A-Z]+/.exec(verdict?.fault ?? '')?.[0] ?? ''}`.trim());
      },
    });
    await sync.load(() => {});
    return sync;
  };
  let sync = await start();
  const files = () => readdirSync(dir).filter((name) => name.endsWith('.yaml'));
  return {
    ...{ dir, files, faults, kept, told },
    text: (name: string) => readFileSync(join(dir, name), 'utf8'),
    put(name: string, created: number, fields: object, kind: Source['kind'] = 'Tenant') {
      const [namespace = '', object = ''] = name.split('/');
      const source = { kind, namespace, name: object, created, generation: 1, atOnce: false, fields: { ...fields } };
      const others = (objects.get(name) ?? []).filter((each) => each.kind !== kind);
      objects.set(name, kind === 'Tenant' ? [...others, source] : [source, ...others]);
      sync.changed(name);
    },
    remove(name: string, kind: Source['kind'] = 'Tenant') {
      const all = objects.get(name) ?? [];
      objects.set(
        name,
        all.filter((each) => each.kind !== kind),
      );
      sync.changed(
        name,
        all.find((each) => each.kind === kind),
      );
    },
    flush: () => sync.flush(),
    wait: (ms: number) => {
      now += ms;
    },
    restart: async () => {
      sync = await start();
    },
    async member() {
      const times = changed(ADMISSION, { tenantsPollMs: 20, bundlesPollMs: 20 });
      scope.defer(() => times[Symbol.dispose]());
      const closing = { defer: (close: () => void) => scope.defer(close) };
      const bundles = { agent: '', caller: '' };
      const own = { ...{ dir, closing, bundles, events: planeEvents() }, rememberMs: 0, tokensOf: [] };
      return await startAdmission(own);
    },
  };
}

const tokens = (issuer: string) => ({
  callers: [{ tokens: { issuer, audience: 'isthmus', jwksUrl: 'https://issuer.example/keys' } }],
});

const missing = [{ certificates: { ca: { secretRef: { name: 'missing', key: 'ca.crt' } } } }];

describe('the directory of a sync', () => {
  test(
    'has each tenant as its object says, in force at members, until the grace after its end is over',
    scoped(async (scope) => {
      const { put, remove, flush, wait, files, member } = await synced(scope);
      put('acme/prod', 1, tokens('https://a.example'));
      await flush();
      const { tenants } = await member();
      assert.equal(tenants.get('acme-prod')?.file.callers?.length, 1);
      remove('acme/prod');
      await flush();
      wait(999);
      await flush();
      assert.deepEqual(files(), ['acme.prod.yaml']);
      put('acme/prod', 2, tokens('https://b.example'));
      await flush();
      wait(2);
      await flush();
      await until(() => tenants.get('acme-prod')?.file.callers?.[0]?.tokens?.issuer === 'https://b.example');
      remove('acme/prod');
      wait(1000);
      await flush();
      wait(1000);
      await flush();
      await until(() => tenants.size === 0);
    }),
  );

  test(
    'keeps what a Cluster says for its grace, though a Tenant that overrides it stays',
    scoped(async (scope) => {
      const { put, remove, flush, wait, text } = await synced(scope);
      put('acme/prod', 1, tokens('https://a.example'), 'Cluster');
      put('acme/prod', 2, { limits: { tunnels: 7 } });
      await flush();
      assert.match(text('acme.prod.yaml'), /a\.example[\s\S]*tunnels: 7/);
      remove('acme/prod', 'Cluster');
      put('acme/prod', 2, { limits: { tunnels: 8 } });
      await flush();
      wait(999);
      await flush();
      assert.match(text('acme.prod.yaml'), /a\.example[\s\S]*tunnels: 7/);
      wait(1);
      await flush();
      await flush();
      assert.doesNotMatch(text('acme.prod.yaml'), /a\.example/);
      put('acme/prod', 3, tokens('https://b.example'), 'Cluster');
      await flush();
      remove('acme/prod', 'Tenant');
      await flush();
      assert.doesNotMatch(text('acme.prod.yaml'), /tunnels/);
    }),
  );

  test(
    'keeps the last good state of an object that cannot be used, also over a restart',
    scoped(async (scope) => {
      const { put, flush, faults, member, restart } = await synced(scope);
      put('acme/prod', 1, tokens('https://a.example'));
      await flush();
      put('acme/prod', 1, { callers: [{ port: 0 }] });
      await flush();
      assert.match(faults.get('acme/prod') ?? '', /^acme\.prod\.yaml:\d+: callers\[0\]\.port: expected a port/);
      await restart();
      put('acme/prod', 1, { callers: [{ port: 0 }] });
      await flush();
      const { tenants } = await member();
      assert.equal(tenants.get('acme-prod')?.file.callers?.[0]?.tokens?.issuer, 'https://a.example');
    }),
  );

  test(
    'says which tenant stays as it was: its agents are still counted, and members name it',
    scoped(async (scope) => {
      const { put, flush, kept } = await synced(scope);
      put('acme/prod', 1, { tenant: 'acme', ...tokens('https://a.example') });
      put('acme/none', 1, { agents: missing });
      await flush();
      put('acme/prod', 1, { tenant: 'acme', agents: missing });
      await flush();
      assert.deepEqual([kept.get('acme/prod'), kept.get('acme/none')], ['acme', undefined]);
    }),
  );

  test(
    'gives what two objects claim to the older, and to the other once it is free',
    scoped(async (scope) => {
      const { put, remove, flush, wait, faults, files } = await synced(scope);
      put('a/later', 2, { tenant: 'wanted', ...tokens('https://a.example') });
      put('z/older', 1, { tenant: 'wanted', ...tokens('https://z.example') });
      await flush();
      assert.deepEqual(files(), ['z.older.yaml']);
      assert.match(faults.get('a/later') ?? '', /wanted/);
      remove('z/older');
      wait(1000);
      await flush();
      wait(1000);
      await flush();
      await flush();
      assert.deepEqual(files(), ['a.later.yaml']);
    }),
  );

  test(
    'gives an object that was refused and is gone nothing, though what it claimed gets free',
    scoped(async (scope) => {
      const { put, remove, flush, wait, faults, files } = await synced(scope);
      put('z/older', 1, { tenant: 'wanted', ...tokens('https://z.example') });
      put('a/later', 2, { tenant: 'wanted', ...tokens('https://a.example') });
      await flush();
      remove('z/older');
      await flush();
      wait(999);
      remove('a/later');
      await flush();
      wait(1);
      await flush();
      await flush();
      assert.deepEqual(files(), []);
      put('z/older', 3, { tenant: 'wanted', ...tokens('https://z.example') });
      await flush();
      assert.deepEqual([files(), faults.get('z/older')], [['z.older.yaml'], undefined]);
    }),
  );

  test(
    'is written again after it could not be, and says so once',
    scoped(async (scope) => {
      const { put, remove, flush, wait, files, dir, told } = await synced(scope);
      put('acme/prod', 1, tokens('https://a.example'));
      await flush();
      rmSync(join(dir, '.files'), { recursive: true });
      // Where a file is to be, a folder is in the way.
      mkdirSync(join(dir, '.half-acme.prod.yaml'));
      put('acme/prod', 1, tokens('https://b.example'));
      for (let times = 0; times < 3; times++) await flush().catch(() => {});
      assert.deepEqual(told.slice(1), ['acme/prod it cannot be written: EISDIR']);
      rmSync(join(dir, '.half-acme.prod.yaml'), { recursive: true });
      await flush();
      assert.match(readFileSync(join(dir, 'acme.prod.yaml'), 'utf8'), /b\.example/);
      remove('acme/prod');
      await flush();
      wait(1000);
      rmSync(join(dir, 'acme.prod.yaml'));
      mkdirSync(join(dir, 'acme.prod.yaml'));
      await assert.rejects(flush(), /acme\.prod\.yaml/);
      rmSync(join(dir, 'acme.prod.yaml'), { recursive: true });
      writeFileSync(join(dir, 'acme.prod.yaml'), 'tenant: acme-prod\n');
      await flush();
      assert.deepEqual(files(), []);
    }),
  );

  test(
    'has no name that is too long for a file system, and no fault that is too long for an object',
    scoped(async (scope) => {
      const { put, flush, faults, files } = await synced(scope);
      const long = `${'n'.repeat(63)}/${'x'.repeat(253)}`;
      put(long, 1, { tenant: 'short', ...tokens('https://a.example') });
      const agents = Array.from({ length: 64 }, (_, index) => {
        const name = `${index}`.repeat(100);
        return { certificates: { ca: { secretRef: { name, key: 'k' } }, crl: { secretRef: { name, key: 'k' } } } };
      });
      put('acme/many', 1, { agents });
      await flush();
      assert.match(faults.get(long) ?? '', /more than 220 characters together/);
      assert.match(faults.get('acme/many') ?? '', /^agents\[0\]\.certificates\.ca: there is no secret/);
      assert.ok((faults.get('acme/many')?.length ?? 0) < 2100);
      assert.deepEqual(files(), []);
    }),
  );

  test(
    'is not a place for the names of other files, for sockets, or for files of others',
    scoped(async (scope) => {
      const { put, flush, faults, files, dir, restart } = await synced(scope);
      writeFileSync(join(dir, 'own.yaml'), 'tenant: own\n');
      put('acme/path', 1, { callers: [{ certificates: { ca: '/etc/shadow', names: ['x'] } }] });
      put('acme/socket', 1, { callers: [{ unixSocket: '/run/x.sock' }] });
      await flush();
      await restart();
      await flush();
      assert.match(faults.get('acme/path') ?? '', /callers\[0\]\.certificates\.ca/);
      assert.match(faults.get('acme/socket') ?? '', /an object cannot have a socket/);
      assert.deepEqual(files(), ['own.yaml']);
      assert.ok(!existsSync('/run/x.sock'));
    }),
  );
});
