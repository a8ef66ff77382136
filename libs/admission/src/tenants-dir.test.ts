import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { selfSigned } from '@isthmus/certificates';
import { changed } from '@isthmus/runtime/testing';
import { ADMISSION } from './defaults.ts';
import type { FileProblems } from './tenants.ts';
import { TenantsDir } from './tenants-dir.ts';

const base64 = (text: string) => Buffer.from(text).toString('base64');

async function directory(context: TestContext) {
  const dir = await mkdtemp(join(tmpdir(), 'tenants-'));
  context.after(() => rm(dir, { recursive: true }));
  const seen: string[] = [];
  const failures: (readonly FileProblems[])[] = [];
  const follow = async () => {
    const followed = new TenantsDir({
      dir,
      changed: ({ changed, gone }) => void seen.push(`${changed.join()} -${gone.join()}`),
      failing: (problems) => void failures.push(problems),
    });
    context.after(() => followed.close());
    await followed.read();
    return followed;
  };
  // At once: a look may come between any two writes.
  const write = async (name: string, text: string) => {
    await writeFile(join(dir, '.new'), text);
    await rename(join(dir, '.new'), join(dir, name));
  };
  return { dir, seen, failures, follow, write };
}

test('tenants follow the files of a directory', async (context) => {
  const { dir, seen, failures, follow, write } = await directory(context);
  await write('acme.yaml', 'tenant: acme');
  await write('notes.txt', 'no tenant');
  const { tenants, look } = await bound(follow());
  assert.deepEqual(
    [...tenants.all].map(({ name }) => name),
    ['acme'],
  );
  await write('beta.yml', 'tenant: beta\nlimits: {tunnels: 7}');
  await look();
  assert.equal(tenants.get('beta')?.limits.tunnels, 7);
  await rm(join(dir, 'acme.yaml'));
  await look();
  assert.deepEqual(seen, ['acme -', 'beta -', ' -acme']);
  assert.deepEqual(failures, []);
});

test('tenants in force stay where others come that are too many, whatever their names', async (context) => {
  using _most = changed(ADMISSION, { tenantFiles: 2 });
  const { seen, failures, follow, write } = await directory(context);
  for (const name of ['beta', 'gamma']) await write(`${name}.yaml`, `tenant: ${name}`);
  const { tenants, look } = await bound(follow());
  await write('acme.yaml', 'tenant: acme');
  await look();
  assert.deepEqual([...tenants.all].map(({ name }) => name).sort(), ['beta', 'gamma']);
  assert.deepEqual(seen, ['beta,gamma -']);
  assert.match(`${failures.at(-1)?.[0]?.problems[0]?.message}`, /^3 files: only 2 are read/);
});

test('a file that cannot be used gives its place to one that can', async (context) => {
  using _most = changed(ADMISSION, { tenantFiles: 3 });
  const { dir, failures, follow, write } = await directory(context);
  await write('a-junk.yaml', 'tenant: [');
  await mkdir(join(dir, 'a-folder.yaml'));
  await write('beta.yaml', 'tenant: beta');
  const { tenants, look } = await bound(follow());
  const inForce = () => [...tenants.all].map(({ name }) => name).sort();
  for (const name of ['gamma', 'zeta']) {
    await write(`${name}.yaml`, `tenant: ${name}`);
    await look();
  }
  assert.deepEqual(inForce(), ['beta', 'gamma', 'zeta']);
  await write('acme.yaml', 'tenant: acme');
  await look();
  assert.deepEqual(inForce(), ['beta', 'gamma', 'zeta']);
  const before = failures.length;
  for (let times = 0; times < 3; times++) await look();
  assert.equal(failures.length, before);
});

test('files that cannot be used do not take turns', async (context) => {
  using _most = changed(ADMISSION, { tenantFiles: 2 });
  const { failures, follow, write } = await directory(context);
  await write('beta.yaml', 'tenant: beta');
  await write('a-junk.yaml', 'tenant: [');
  const { look } = await bound(follow());
  await write('z-junk.yaml', 'tenant: [');
  for (let times = 0; times < 2; times++) await look();
  const before = failures.length;
  for (let times = 0; times < 3; times++) await look();
  assert.equal(failures.length, before);
});

test('a unix socket is of one tenant, however its path is written', async (context) => {
  const { dir, follow, write } = await directory(context);
  await write('acme.yaml', 'tenant: acme\ncallers: [{unixSocket: run/acme.sock}]');
  await write('beta.yaml', `tenant: beta\ncallers: [{unixSocket: ${dir}/other/../run/acme.sock}]`);
  const { problems } = await follow();
  assert.deepEqual(
    problems.map(({ path, problems: [first] }) => [path, first?.line]),
    [['beta.yaml', 2]],
  );
});

test('a file that cannot be used is reported once, and its tenant stays', async (context) => {
  const { failures, follow, write } = await directory(context);
  await write('acme.yaml', 'tenant: acme');
  const { tenants, look } = await bound(follow());
  await write('acme.yaml', 'tenant: acme\nlimit: 1');
  await look();
  await look();
  assert.deepEqual(
    failures.map((problems) => problems.map(({ path, kept }) => [path, kept])),
    [[['acme.yaml', 'acme']]],
  );
  assert.ok(tenants.get('acme'));
  await write('acme.yaml', 'tenant: acme\nlimits: {agents: 3}');
  await look();
  assert.deepEqual(failures.at(-1), []);
  assert.equal(tenants.get('acme')?.limits.agents, 3);
});

const kubeconfig = JSON.stringify({
  'current-context': 'c',
  contexts: [{ name: 'c', context: { cluster: 'c', user: 'u' } }],
  clusters: [{ name: 'c', cluster: { server: 'https://api.example' } }],
  users: [{ name: 'u', user: {} }],
});

test('a tenant whose kubeconfig is not whole at the start is in force, and its fault is named', async (context) => {
  const { failures, follow, write } = await directory(context);
  const said = () => (failures.at(-1) ?? []).map(({ kept, problems }) => `${kept}: ${problems[0]?.message}`).join('\n');
  await write('reviewer.conf', kubeconfig.slice(0, 40));
  const reviewed = 'agents: [{tokenReview: {kubeconfig: reviewer.conf}}]';
  await write('acme.yaml', `tenant: acme\n${reviewed}`);
  await write('beta.yaml', `tenant: beta\n${reviewed}`);
  const { tenants, look } = await bound(follow());
  assert.ok(tenants.get('acme'));
  assert.match(said(), /^acme: reviewer\.conf: .*\nbeta: reviewer\.conf: /);
  assert.ok(failures.at(-1)?.every(({ newest }) => newest));
  // What else the file says changes meanwhile.
  await write('acme.yaml', `tenant: acme\nlimits: {agents: 3}\n${reviewed}`);
  await look();
  assert.equal(tenants.get('acme')?.limits.agents, 3);
  assert.match(said(), /^acme: reviewer\.conf: /);
  await write('reviewer.conf', kubeconfig);
  await look();
  assert.match(said(), /^beta: tokenReview of .* is in acme\.yaml too/);
  await write('beta.yaml', 'tenant: beta');
  await look();
  assert.deepEqual(failures.at(-1), []);
  const before = tenants.get('acme');
  await write('reviewer.conf', '');
  await look();
  assert.match(said(), /^acme: reviewer\.conf: /);
  assert.equal(tenants.get('acme'), before, 'the same reviewer');
  assert.equal(failures.at(-1)?.[0]?.newest, false, 'by an earlier text');
});

test('a kubeconfig that turns bad is reported as its file, and what was in force stays', async (context) => {
  const { failures, follow, write } = await directory(context);
  await write('reviewer.conf', kubeconfig);
  await write('acme.yaml', 'tenant: acme\nagents: [{tokenReview: {kubeconfig: reviewer.conf}}]');
  const { tenants, look } = await bound(follow());
  assert.equal(failures.length, 0);
  const before = tenants.get('acme');
  for (const bad of [
    '',
    kubeconfig.slice(0, 40),
    '-----BEGIN CERTIFICATE-----\n',
    kubeconfig.replace('https:', 'ftp:'),
  ]) {
    await write('reviewer.conf', bad);
    await look();
    const said = (failures.at(-1) ?? []).map(({ kept, problems }) => `${kept}: ${problems[0]?.message}`);
    assert.match(said.join('\n'), /^acme: reviewer\.conf: /, bad);
    assert.equal(tenants.get('acme'), before, 'the same reviewer');
  }
  await write('reviewer.conf', kubeconfig);
  await look();
  assert.deepEqual(failures.at(-1), []);
});

test('a kubeconfig that is cut among its users, which kubectl writes last, changes nothing', async (context) => {
  const { failures, follow, write } = await directory(context);
  const { cert, key } = await selfSigned('reviewer');
  const [head, user] = [
    'clusters:\n- cluster:\n    server: https://api.example\n  name: c\ncontexts:\n- context: {cluster: c, user: u}\n  name: c\ncurrent-context: c\nusers:\n',
    `- name: u\n  user:\n    client-certificate-data: ${base64(cert)}\n    client-key-data: ${base64(key)}`,
  ];
  await write('reviewer.conf', `${head}${user}\n`);
  await write('acme.yaml', 'tenant: acme\nagents: [{tokenReview: {kubeconfig: reviewer.conf}}]');
  const { tenants, look } = await bound(follow());
  assert.equal(failures.length, 0);
  const ends = ['', 'name: u', 'user:', 'certificate-data:', base64(cert).slice(0, 400), base64(cert), 'key-data:'];
  for (const end of [...ends, base64(key).slice(0, 100)]) {
    const before = tenants.get('acme');
    await write('reviewer.conf', head + user.slice(0, user.indexOf(end) + end.length));
    await look();
    const said = (failures.at(-1) ?? []).map(({ kept, problems }) => `${kept}: ${problems[0]?.message}`);
    assert.match(said.join('\n'), /^acme: reviewer\.conf: /, `cut after ${end}`);
    assert.equal(tenants.get('acme'), before, 'the same reviewer');
    await write('reviewer.conf', `${head}${user}\n`);
    await look();
    assert.deepEqual(failures.at(-1), []);
  }
});

test('a file that is written in place counts once two looks find the same', async (context) => {
  const { dir, failures, follow, write } = await directory(context);
  const [one, two] = await Promise.all(['one', 'two'].map((name) => selfSigned(name)));
  const bundle = `${one?.cert}${two?.cert}`;
  await write('ca.crt', bundle);
  await write('acme.yaml', 'tenant: acme\nlimits: {agents: 3}\nagents: [{certificates: {ca: ca.crt}}]');
  const { tenants, look } = await bound(follow());
  const said = () => {
    const { limits, certificates } = tenants.get('acme') ?? {};
    return `${limits?.agents} ${certificates?.agent[0]?.trust?.all.length}`;
  };
  const put = async (name: string, text: string) => {
    await writeFile(join(dir, name), text);
    await look();
    return said();
  };
  for (const half of ['', bundle.slice(0, bundle.length / 4), one?.cert ?? ''])
    assert.equal(await put('ca.crt', half), '3 2');
  assert.equal(await put('ca.crt', bundle), '3 2');
  await look();
  for (const half of ['', 'tenant: acme\n']) assert.equal(await put('acme.yaml', half), '3 2');
  const next = 'tenant: acme\nlimits: {agents: 4}\nagents: [{certificates: {ca: ca.crt}}]';
  assert.equal(await put('acme.yaml', next), '3 2');
  await look();
  assert.deepEqual([said(), failures], ['4 2', []]);
  await put('ca.crt', '');
  await look();
  assert.deepEqual([said(), failures.at(-1)?.[0]?.kept], ['4 2', 'acme']);
});

test('a file that is written in place again and again is read after a few looks', async (context) => {
  const { dir, failures, follow, write } = await directory(context);
  const text = (agents: number) => `tenant: acme\nlimits: {agents: ${agents}}\nagents: [{certificates: {ca: ca.crt}}]`;
  const [{ cert }, other] = [await selfSigned('one'), await selfSigned('two')];
  await write('ca.crt', cert);
  await write('acme.yaml', text(3));
  const { tenants, look } = await bound(follow());
  const looks = async (name: string, put: string, known: () => unknown) => {
    for (let count = 1; count <= 20; count++) {
      await writeFile(join(dir, name), `${put}${'\n'.repeat(count)}`);
      await look();
      if (known()) return count;
    }
    return Infinity;
  };
  const agents = () => tenants.get('acme')?.limits.agents;
  const bundle = () => tenants.get('acme')?.certificates.agent[0]?.trust?.all.length;
  assert.equal(await looks('ca.crt', cert + other.cert, () => bundle() === 2), 6);
  assert.equal(await looks('acme.yaml', text(4), () => agents() === 4), 6);
  assert.equal(failures.length, 0);
  assert.equal(await looks('acme.yaml', '}', () => failures.length > 0), 6);
  assert.deepEqual([agents(), bundle(), failures[0]?.[0]?.kept], [4, 2, 'acme']);
});

test('a mounted ConfigMap is followed: its directory is replaced as a whole', async (context) => {
  const { dir, follow } = await directory(context);
  const version = async (name: string, text: string) => {
    await mkdir(join(dir, name));
    await writeFile(join(dir, name, 'acme.yaml'), text);
    await symlink(name, join(dir, '..new'));
    await rename(join(dir, '..new'), join(dir, '..data'));
  };
  await version('..1', 'tenant: acme');
  await symlink(join('..data', 'acme.yaml'), join(dir, 'acme.yaml'));
  const { tenants, look } = await bound(follow());
  await version('..2', 'tenant: acme\nlimits: {agents: 9}');
  await look();
  assert.equal(tenants.get('acme')?.limits.agents, 9);
});

test('a directory that goes away keeps its tenants, and is reported', async (context) => {
  const { dir, failures, follow, write } = await directory(context);
  await write('acme.yaml', 'tenant: acme');
  const { tenants, look } = await bound(follow());
  await rename(dir, `${dir}-away`);
  await look();
  await rename(`${dir}-away`, dir);
  assert.ok(tenants.get('acme'));
  assert.match(failures[0]?.[0]?.problems[0]?.message ?? '', /the directory cannot be read: ENOENT/);
  await look();
  assert.deepEqual(failures.at(-1), []);
});

test('a look that is asked for while another runs sees what was written before', async (context) => {
  const { dir, write } = await directory(context);
  let asked: Promise<void> | undefined;
  const followed = new TenantsDir({
    dir,
    failing() {},
    changed({ changed }) {
      if (!changed.includes('acme')) return;
      // The look that runs has read all files by now.
      writeFileSync(join(dir, 'beta.yaml'), 'tenant: beta');
      asked = followed.look();
    },
  });
  context.after(() => followed.close());
  await followed.read();
  await write('acme.yaml', 'tenant: acme');
  await followed.look();
  await asked;
  assert.ok(followed.tenants.get('beta'));
});

test('a program does not start without the directory', async () => {
  const followed = new TenantsDir({ dir: '/nowhere', changed() {}, failing() {} });
  await assert.rejects(followed.read(), /ENOENT/);
  followed.close();
});

async function bound(following: Promise<TenantsDir>) {
  const followed = await following;
  return { tenants: followed.tenants, look: () => followed.look() };
}
