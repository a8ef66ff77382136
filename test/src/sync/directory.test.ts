import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { ADMISSION, CredentialCache, candidate, readTenantFile, startAdmission } from '@isthmus/admission';
import { changed } from '@isthmus/runtime/testing';
import { Directory, Sync } from '@isthmus/tenants-sync';
import { planeEvents } from '@isthmus/tunnel';
import { type Scope, scoped, tempDir, unlessSlow, until } from '../harness/index.ts';
import { flushOnce } from './flush-once.ts';
import { newCa, newLeaf } from './objects.ts';

type Source = ReturnType<ConstructorParameters<typeof Sync>[0]['sources']>[number];

/** A sync of objects that a test puts there, and a member that reads its directory. */
async function synced(scope: Scope, given?: string) {
  const dir = given ?? (await tempDir(scope));
  const cas = new Map<string, string>();
  const objects = new Map<string, Source[]>();
  const faults = new Map<string, string | undefined>();
  /** The tenant of which an earlier state is in force. */
  const kept = new Map<string, string>();
  const told: string[] = [];
  let now = 0;
  const start = async () => {
    const sync = new Sync({
      directory: new Directory(dir),
      stores(_store, name) {
        const ca = cas.get(name);
        return ca === undefined ? undefined : { values: new Map([['ca.crt', ca]]), allows: [] };
      },
      sources: (name) => objects.get(name) ?? [],
      graceMs: 1000,
      now: () => now,
      changed(name, verdict) {
        faults.set(name, verdict?.fault);
        if (verdict?.fault !== undefined && verdict.kept) kept.set(name, verdict.tenant);
        told.push(`${name} ${/^[^:]*: E[A-Z]+/.exec(verdict?.fault ?? '')?.[0] ?? ''}`.trim());
      },
    });
    await sync.load();
    return sync;
  };
  let sync = await start();
  const files = () => readdirSync(dir).filter((name) => name.endsWith('.yaml'));
  return {
    ...{ dir, files, faults, kept, told, cas },
    text: (name: string) => readFileSync(join(dir, name), 'utf8'),
    put(name: string, created: number, fields: object, kind: Source['kind'] = 'Tenant') {
      const [namespace = '', object = ''] = name.split('/');
      const source = { kind, namespace, name: object, created, generation: 1, atOnce: false, fields: { ...fields } };
      const others = (objects.get(name) ?? []).filter((each) => each.kind !== kind);
      objects.set(name, kind === 'Tenant' ? [...others, source] : [source, ...others]);
      sync.changed(name);
    },
    remove(name: string, kind: Source['kind'] = 'Tenant', atOnce = false) {
      const all = objects.get(name) ?? [];
      objects.set(
        name,
        all.filter((each) => each.kind !== kind),
      );
      const gone = all.find((each) => each.kind === kind);
      sync.changed(name, gone && { ...gone, atOnce });
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
    'may have what is no file of a tenant in it: a pipe, a directory, what is too large',
    scoped(async (scope) => {
      const { dir, put, flush, restart, text } = await synced(scope);
      put('acme/prod', 1, tokens('https://a.example'));
      await flush();
      execFileSync('mkfifo', [join(dir, 'pipe.yaml')]);
      mkdirSync(join(dir, 'directory.yaml'));
      writeFileSync(join(dir, 'large.yaml'), `tenant: large\n#${'x'.repeat(ADMISSION.tenantFileBytes)}`);
      await restart();
      put('acme/prod', 1, tokens('https://b.example'));
      await flush();
      assert.match(text('acme.prod.yaml'), /b\.example/);
    }),
  );

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

  test(
    'gives a name that two namespaces make to the older object, until the other has one of its own',
    scoped(async (scope) => {
      const { put, flush, faults, files } = await synced(scope);
      put('a-b/c', 2, tokens('https://later.example'));
      put('a/b-c', 1, tokens('https://older.example'));
      await flush();
      assert.match(faults.get('a-b/c') ?? '', /^a-b\.c\.yaml:1: tenant: tenant a-b-c is in a\.b-c too/);
      put('a-b/c', 2, { tenant: 'own', ...tokens('https://later.example') });
      await flush();
      assert.deepEqual([faults.get('a-b/c'), files().sort()], [undefined, ['a-b.c.yaml', 'a.b-c.yaml']]);
    }),
  );

  test(
    'takes no bundle that is broken, says which it is, and takes text beside certificates',
    scoped(async (scope) => {
      const { put, flush, cas, faults, dir } = await synced(scope);
      const [one, two] = [await newCa(), await newCa()];
      const [begin, body, end] = [
        one.split('\n')[0],
        one.split('\n').slice(1, -2).join('\n'),
        one.trim().split('\n').at(-1),
      ];
      const broken = {
        empty: '',
        text: 'no certificate\n',
        binary: '\0\x01\xff'.repeat(100),
        notDer: `${two}${begin}\nAAAA\n${end}\n`,
        cutInside: `${two}${begin}\n${body.slice(0, 64)}\n${end}\n`,
        key: one.replaceAll('CERTIFICATE', 'EC PRIVATE KEY'),
        leaf: await newLeaf(),
      };
      const names = Object.keys(broken).map((name) => name.toLowerCase());
      for (const [index, text] of Object.values(broken).entries()) cas.set(`acme/${names[index]}`, text);
      cas.set('acme/remarks', `# the old one\r\n${one}\nand the new one: ä \n${two}rest`);
      cas.set('acme/many', (await Promise.all(Array.from({ length: 20 }, (_, n) => newCa(`ca-${n}`)))).join(''));
      for (const name of [...names, 'remarks', 'many']) put(`acme/${name}`, 1, { agents: ownCa(name) });
      await flush();
      for (const name of names)
        assert.match(faults.get(`acme/${name}`) ?? '', /^acme\.\w+\.yaml:\d+: agents\[0\]\.certificates\.ca: /, name);
      assert.deepEqual([faults.get('acme/remarks'), faults.get('acme/many')], [undefined, undefined]);
      assert.deepEqual(Object.keys(await asMembersRead(dir)).sort(), ['acme-many', 'acme-remarks']);
    }),
  );

  test(
    'keeps what an object said whose secret went or changed its kind, and takes what comes in its place',
    scoped(async (scope) => {
      const { put, flush, cas, faults, kept, dir } = await synced(scope);
      cas.set('acme/prod', await newCa());
      const change = async (ca: string | undefined) => {
        if (ca === undefined) cas.delete('acme/prod');
        else cas.set('acme/prod', ca);
        put('acme/prod', 1, { agents: ownCa('prod') });
        await flush();
        return (await asMembersRead(dir))['acme-prod'];
      };
      const first = cas.get('acme/prod');
      assert.equal(await change(first), first);
      assert.equal(await change(undefined), first);
      assert.match(faults.get('acme/prod') ?? '', /there is no secret acme\/prod with the label/);
      assert.equal(await change('{"auths": {}}'), first);
      assert.deepEqual([faults.get('acme/prod') === undefined, kept.get('acme/prod')], [false, 'acme-prod']);
      const next = await newCa();
      assert.equal(await change(next), next);
      assert.equal(faults.get('acme/prod'), undefined);
    }),
  );

  test(
    'ends a tenant at once where its object says so, and not while another is made in its place within the grace',
    scoped(async (scope) => {
      const { put, remove, flush, wait, files } = await synced(scope);
      const there = async (ms = 0) => {
        wait(ms);
        await flush();
        return files().length === 1;
      };
      put('acme/prod', 1, tokens('https://a.example'));
      assert.ok(await there());
      remove('acme/prod');
      assert.ok(await there(999));
      put('acme/prod', 2, tokens('https://a.example'));
      assert.ok(await there(1000));
      remove('acme/prod', 'Tenant', true);
      assert.ok(!(await there()));
      put('acme/prod', 3, tokens('https://a.example'), 'Cluster');
      put('acme/prod', 3, { limits: { tunnels: 7 } });
      assert.ok(await there());
      // Only the Cluster makes the tenant, so only its own annotation counts.
      remove('acme/prod', 'Cluster');
      remove('acme/prod', 'Tenant', true);
      assert.ok(await there(999));
      assert.ok(!(await there(1)));
    }),
  );

  test(
    'keeps what a Tenant made of a Cluster that cannot be used by itself, and says so of the Cluster',
    scoped(async (scope) => {
      const { put, remove, flush, faults, kept, text } = await synced(scope);
      put('acme/prod', 1, { agents: missing }, 'Cluster');
      put('acme/prod', 2, { agents: undefined, ...tokens('https://a.example') });
      await flush();
      assert.equal(faults.get('acme/prod'), undefined);
      remove('acme/prod');
      await flush();
      assert.match(text('acme.prod.yaml'), /a\.example/);
      assert.match(faults.get('acme/prod') ?? '', /there is no secret acme\/missing/);
      assert.equal(kept.get('acme/prod'), 'acme-prod');
    }),
  );

  test(
    'is whole again after a start, whatever of it was cut short or removed',
    scoped(async (scope) => {
      const { put, flush, cas, dir, restart, faults } = await synced(scope);
      cas.set('acme/prod', await newCa());
      const start = async () => {
        put('acme/prod', 1, { agents: ownCa('prod') });
        await flush();
        assert.equal(faults.get('acme/prod'), undefined);
        assert.deepEqual(await asMembersRead(dir), { 'acme-prod': cas.get('acme/prod') });
      };
      await start();
      const [file = ''] = globSync('.files/*/*', { cwd: dir });
      for (const harm of [
        () => truncateSync(join(dir, file)),
        () => rmSync(join(dir, file)),
        () => rmSync(join(dir, '.files'), { recursive: true }),
        () => truncateSync(join(dir, 'acme.prod.yaml')),
        () => rmSync(join(dir, 'acme.prod.yaml')),
      ]) {
        harm();
        await restart();
        await start();
      }
    }),
  );

  test(
    'is whole again without a start, whatever of it somebody removes',
    scoped(async (scope) => {
      const { put, flush, cas, dir, faults, member } = await synced(scope);
      cas.set('acme/prod', await newCa());
      put('acme/prod', 1, { agents: ownCa('prod') });
      await flush();
      const before = await asMembersRead(dir);
      const { tenants } = await member();
      const moved = `${dir}-moved`;
      for (const harm of [
        () => rmSync(join(dir, 'acme.prod.yaml')),
        () => rmSync(join(dir, '.files'), { recursive: true }),
        () => rmSync(dir, { recursive: true }),
        () => {
          renameSync(dir, moved);
          mkdirSync(`${dir}-other`);
          symlinkSync(`${dir}-other`, dir);
        },
      ]) {
        harm();
        for (let times = 0; times < 2; times++) await flush();
        assert.deepEqual(await asMembersRead(dir), before);
      }
      await until(() => tenants.get('acme-prod') !== undefined);
      // Of one that is refused by now, what is in force is put back.
      put('acme/prod', 1, { agents: missing });
      await flush();
      rmSync(join(dir, 'acme.prod.yaml'));
      await flush();
      assert.deepEqual(await asMembersRead(dir), before);
      assert.match(faults.get('acme/prod') ?? '', /there is no secret/);
      for (const each of [moved, `${dir}-other`]) rmSync(each, { recursive: true });
    }),
  );

  test(
    'has the old state or the new one, at whichever of its steps a sync is killed',
    { skip: unlessSlow() },
    scoped(async (scope) => {
      const first = await tempDir(scope);
      const [old, fresh] = [await newCa(), await newCa()];
      const before = { 'acme/prod': old, 'acme/gone': await newCa() };
      const after = { 'acme/prod': old + fresh, 'acme/new': await newCa() };
      await flushOnce(first, before);
      /** Ends with whether a sync was killed there. */
      const killed = async (at: string) => {
        const dir = await tempDir(scope);
        cpSync(first, dir, { recursive: true });
        assert.deepEqual(await asMembersRead(dir), named(before));
        const args = ['-C', 'deno', '--import', path('./killed-at.mjs'), path('./flush-once.ts'), dir];
        const env = { ...process.env, KILLED_AT: at };
        const { signal, status, stderr } = spawnSync(process.execPath, [...args, JSON.stringify(after)], { env });
        assert.ok(signal === 'SIGKILL' || status === 0, `${stderr}`);
        const { 'acme-prod': ca, ...others } = await asMembersRead(dir);
        assert.ok(ca === old || ca === after['acme/prod'], at);
        for (const [tenant, own] of Object.entries(others))
          assert.equal(own, { ...named(before), ...named(after) }[tenant], `${tenant}, ${at}`);
        await flushOnce(dir, after);
        assert.deepEqual(await asMembersRead(dir), named(after), at);
        assert.deepEqual(globSync('**/.half-*', { cwd: dir }), [], at);
        return signal !== null;
      };
      const steps = { before: 0, within: 0 };
      while (await killed(`before ${steps.before + 1} . .`)) steps.before++;
      while (await killed(`within ${steps.within + 1} writeFileSync .`)) steps.within++;
      // Two tenants are written, of a folder, a file in it and a file beside it, and one is removed.
      assert.ok(steps.before >= 13 && steps.within === 4, JSON.stringify(steps));
    }),
  );

  test(
    'stays in force on a disk that is full or cannot be written, and takes the new state once it can',
    { skip: noMounts() },
    scoped(async (scope) => {
      const place = await tempDir(scope);
      const mount = (...args: string[]) => execFileSync('mount', [...args, place]);
      mount('-t', 'tmpfs', '-o', 'size=256k', 'tmpfs');
      scope.defer(() => void execFileSync('umount', [place]));
      const { put, flush, cas, dir, told } = await synced(scope, place);
      cas.set('acme/prod', await newCa());
      put('acme/prod', 1, { agents: ownCa('prod') });
      await flush();
      const before = await asMembersRead(dir);
      const full = () => writeFileSync(join(dir, 'filler'), Buffer.alloc(1024 * 1024));
      for (const [harm, code, repair] of [
        [() => assert.throws(full, /ENOSPC/), 'ENOSPC', () => rmSync(join(dir, 'filler'))],
        [() => mount('-o', 'remount,ro'), 'EROFS', () => mount('-o', 'remount,rw')],
      ] as const) {
        harm();
        told.length = 0;
        cas.set('acme/prod', (cas.get('acme/prod') ?? '') + (await newCa()));
        put('acme/prod', 1, { agents: ownCa('prod') });
        for (let times = 0; times < 3; times++) await flush().catch(() => {});
        assert.deepEqual(told, [`acme/prod it cannot be written: ${code}`]);
        assert.deepEqual(await asMembersRead(dir), before);
        repair();
        await flush();
        assert.deepEqual(await asMembersRead(dir), { 'acme-prod': cas.get('acme/prod') });
        Object.assign(before, await asMembersRead(dir));
      }
    }),
  );
});

const path = (name: string) => new URL(name, import.meta.url).pathname;
const ownCa = (name: string) => [{ certificates: { ca: { secretRef: { name, key: 'ca.crt' } } } }];

/** By the names of tenants what is given by those of objects. */
function named(objects: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(objects).map(([name, ca]) => [name.replace('/', '-'), ca]));
}

/** By tenant: the CA of its agents, as members read it. Fails if there is anything that they could not use. */
async function asMembersRead(dir: string): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  for (const name of readdirSync(dir).filter((each) => /^[^.].*\.yaml$/.test(each))) {
    const read = readTenantFile(readFileSync(join(dir, name), 'utf8'));
    assert.ok('file' in read, name);
    const credentials = await new CredentialCache(dir).of(read, undefined);
    assert.deepEqual(candidate(name, { read, credentials }).problems, []);
    found[read.file.tenant] = readFileSync(join(dir, read.file.agents?.[0]?.certificates?.ca ?? ''), 'utf8');
  }
  return found;
}

/** Why this process cannot mount a disk of its own, or false. */
function noMounts(): string | false {
  return spawnSync('unshare', ['--mount', 'true']).status === 0 ? false : 'it may not mount (CAP_SYS_ADMIN)';
}
