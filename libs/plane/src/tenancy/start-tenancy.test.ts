import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { mkdir, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ADMISSION } from '@isthmus/admission';
import { CertificateAuthority } from '@isthmus/certificates';
import { certificateOf } from '@isthmus/runtime';
import { changed } from '@isthmus/runtime/testing';
import { Closing } from '@isthmus/service';
import { planeEvents, principalText } from '@isthmus/tunnel';
import { startTenancy } from './start-tenancy.ts';

const DAY = 86_400_000;

const FLAGS = { 'cipher-suites': [], 'tls-min-version': '' };

const acme = await CertificateAuthority.create('kubernetes', DAY);
const other = await CertificateAuthority.create('kubernetes', DAY);
const servers = await CertificateAuthority.create('servers', DAY);
const server = await servers.issue({ commonName: 'acme.example', validMs: DAY, uses: ['server'] });

const ACME = `
tenant: acme
server: {serverNames: [acme.example], certificate: tls/tls.crt, key: tls/tls.key}
agents:
  - {certificates: {ca: acme-ca.crt}}`;

async function shown(authority: CertificateAuthority, commonName: string) {
  const { cert } = await authority.issue({ commonName, validMs: DAY });
  return { leaf: certificateOf(new X509Certificate(cert).raw), sent: [] };
}

async function starting(context: TestContext) {
  const times = changed(ADMISSION, { tenantsPollMs: 100, bundlesPollMs: 100 });
  context.after(() => times[Symbol.dispose]());
  const dir = await mkdtemp(join(tmpdir(), 'tenancy-'));
  context.after(() => rm(dir, { recursive: true }));
  // At once, because a poll may come between any two writes.
  const write = async (name: string, text: string) => {
    await writeFile(join(dir, `${name}.new`), text);
    await rename(join(dir, `${name}.new`), join(dir, name));
  };
  await mkdir(join(dir, 'tls'));
  await write('tls/tls.crt', server.cert);
  await write('tls/tls.key', server.key);
  await write('acme-ca.crt', acme.cert);
  await write('acme.yaml', ACME);
  const events = planeEvents();
  const said: string[] = [];
  events.on('tenants', ({ changed, gone, inForce }) => void said.push(`${changed.join()} -${gone.join()} ${inForce}`));
  events.on('tenants:failure', (problem, kept) => void said.push(`${problem} (${kept})`));
  events.on('fault', (where, _remote, error) => void said.push(`${where}: ${error.message}`));
  events.on('certificate:failure', (where, _files, error) => void said.push(`${where}: ${error?.message ?? 'well'}`));
  const start = async (flags: Readonly<Record<string, string>> = {}) => {
    const closing = new Closing();
    context.after(() => closing.close());
    const tenancy = await startTenancy({ ...FLAGS, 'tenants-dir': dir, ...flags }, { closing, events });
    const agent = async (authority: CertificateAuthority, name: string) => {
      const certificate = await shown(authority, name);
      const source = '127.0.0.1';
      return tenancy.identify.agent({ certificate, source, signal: AbortSignal.timeout(60_000) });
    };
    return { tenancy, agent };
  };
  return { dir, write, start, said };
}

/** Waits for what a poll of the files brings, a minute at most. */
async function until(found: () => boolean, what: string): Promise<void> {
  for (const end = Date.now() + 60_000; !found(); await delay(20)) assert.ok(Date.now() < end, what);
}

test("why a tenant's port is not open is told, though others have many", async (context) => {
  const { start } = await starting(context);
  const { tenancy } = await start();
  const of = (file: string, count: number) =>
    Array.from({ length: count }, (_, index) => `${file}: agents[${index}].port: taken`);
  const unopened = [...of('acme.yaml', 1000), ...of('beta.yaml', 1)];
  assert.deepEqual(tenancy.views.part({ gateway: { unopened, use: () => undefined } }).unopened(), [
    ...of('acme.yaml', ADMISSION.problemsOfFile),
    ...of('beta.yaml', 1),
  ]);
});

test('a directory that cannot be read is an error that names the flag', async () => {
  const starts = startTenancy(
    { ...FLAGS, 'tenants-dir': '/nowhere' },
    { closing: new Closing(), events: planeEvents() },
  );
  await assert.rejects(starts, /^Error: --tenants-dir \/nowhere cannot be read: ENOENT/);
});

test('a tenant is served with the files that its file names', async (context) => {
  const { start, said } = await starting(context);
  const { tenancy, agent } = await start();
  assert.equal(principalText((await agent(acme, 'e1')).principal), 'acme/agent/e1');
  assert.ok(tenancy.chooseTls('acme.example'));
  assert.equal(tenancy.chooseTls('acme.example'), tenancy.chooseTls('ACME.example'));
  assert.equal(tenancy.chooseTls('beta.example'), undefined);
  assert.equal(tenancy.views.check({}).detail, '1 in force');
  assert.deepEqual(said, ['acme - 1']);
});

test('a CA that is replaced ends what stood on it, and nothing else', async (context) => {
  const { write, start, said } = await starting(context);
  await write('beta-ca.crt', other.cert);
  await write('beta.yaml', 'tenant: beta\nagents: [{certificates: {ca: beta-ca.crt}}]');
  const { agent, tenancy } = await start();
  const ended: string[] = [];
  for (const [authority, name] of [
    [acme, 'e1'],
    [other, 'e2'],
  ] as const)
    (await agent(authority, name)).watch(({ message }) => void ended.push(message));
  const changes: string[] = [];
  tenancy.changed(({ changed }) => void changes.push(changed.join()));
  // Renewed with the same key, an authority stays one: beta's bundle gains another.
  const next = await CertificateAuthority.create('next', DAY);
  await write('beta-ca.crt', `${next.cert}\n${other.cert}`);
  await write('acme-ca.crt', (await CertificateAuthority.create('newer', DAY)).cert);
  // A look may come between the two writes.
  await until(() => ended.length > 0 && changes.join().includes('beta'), 'not all was seen');
  assert.deepEqual(ended, [
    'agent e1 of tenant acme is not authorised: the authority that issued its certificate was removed (acme.yaml: agents)',
  ]);
  await assert.rejects(agent(acme, 'e1'), /not a trusted authority/);
  assert.equal(principalText((await agent(next, 'e3')).principal), 'beta/agent/e3');
  assert.deepEqual(changes.join().split(',').sort(), ['acme', 'beta']);
  assert.equal(said.length, 1 + changes.length);
});

test('a listener that fails is reported, and hides a change from no other', async (context) => {
  const { write, start, said } = await starting(context);
  const { tenancy } = await start();
  const heard: string[] = [];
  tenancy.changed(({ changed }) => void heard.push(`first ${changed.join()}`));
  tenancy.changed(() => {
    throw new Error('a defect');
  });
  tenancy.changed(({ changed }) => void heard.push(`last ${changed.join()}`));
  await write('beta-ca.crt', other.cert);
  await write('beta.yaml', 'tenant: beta\nagents: [{certificates: {ca: beta-ca.crt}}]');
  await until(() => said.length === 3, 'the change was not heard');
  assert.deepEqual(heard, ['first beta', 'last beta']);
  assert.deepEqual(said.slice(1), ['tenants: a defect', 'beta - 2']);
});

test("a change of the program's CA bundle is one of all tenants, and what it skips is named", async (context) => {
  const { dir, write, start, said } = await starting(context);
  await write('program-ca.crt', servers.cert);
  const { tenancy } = await start({ 'cluster-ca-cert': join(dir, 'program-ca.crt') });
  const changes: string[] = [];
  // Who was refused is judged again.
  tenancy.changed(({ changed }) => void changes.push(...changed));
  await write('program-ca.crt', `${servers.cert}${other.cert.replace('MII', 'M!!')}`);
  await until(() => changes.includes('acme'), 'no change was told');
  assert.match(said.join(), /agents: .*program-ca\.crt: certificate 2 of 2: its PEM block is damaged/);
});

test('a file that is missing or broken keeps its tenant as it was, and is named', async (context) => {
  const { dir, write, start, said } = await starting(context);
  const { agent, tenancy } = await start();
  const ended: string[] = [];
  (await agent(acme, 'e1')).watch(({ message }) => void ended.push(message));
  await rename(join(dir, 'acme-ca.crt'), join(dir, 'away'));
  await until(() => said.length > 1, 'nothing was reported');
  assert.deepEqual(said.slice(1), [
    'acme.yaml:5:25: agents[0].certificates.ca: acme-ca.crt: there is no such file (acme)',
  ]);
  assert.equal(principalText((await agent(acme, 'e1')).principal), 'acme/agent/e1');
  assert.equal(
    tenancy.views.check({}).detail,
    '1 in force, 1 file with problems: acme.yaml:5:25: agents[0].certificates.ca: acme-ca.crt: there is no such file (tenant acme stays as it was)',
  );
  assert.equal(tenancy.views.state.badFiles, 1);
  await write('tls/tls.key', 'half a key');
  await rename(join(dir, 'away'), join(dir, 'acme-ca.crt'));
  await until(() => said.length > 2, 'nothing more was reported');
  assert.match(said[2] ?? '', /^acme\.yaml:3:\d+: server\.key: tls\/tls\.key: there is no usable private key/);
  const before = tenancy.chooseTls('acme.example');
  const renewed = await servers.issue({ commonName: 'acme.example', validMs: DAY, uses: ['server'] });
  await write('tls/tls.crt', renewed.cert);
  await write('tls/tls.key', renewed.key);
  await until(() => tenancy.problems.length === 0, 'the problem stays');
  assert.notEqual(tenancy.chooseTls('acme.example'), before);
  assert.deepEqual(ended, []);
});

test('a mounted Secret is followed: its directory is replaced as a whole', async (context) => {
  const { dir, write, start } = await starting(context);
  const version = async (name: string, ca: string) => {
    await mkdir(join(dir, 'secret', name), { recursive: true });
    await write(`secret/${name}/ca.crt`, ca);
    await symlink(name, join(dir, 'secret/..new'));
    await rename(join(dir, 'secret/..new'), join(dir, 'secret/..data'));
  };
  await version('..1', acme.cert);
  await symlink('..data/ca.crt', join(dir, 'secret/ca.crt'));
  await write('acme.yaml', 'tenant: acme\nagents: [{certificates: {ca: secret/ca.crt}}]');
  const { agent } = await start();
  const ended: string[] = [];
  (await agent(acme, 'e1')).watch(({ message }) => void ended.push(message));
  await version('..2', other.cert);
  await until(() => ended.length > 0, 'nothing ended');
  assert.equal(principalText((await agent(other, 'e2')).principal), 'acme/agent/e2');
});

test('the CA bundle of the program verifies SPIFFE IDs, and is followed', async (context) => {
  const { dir, write, start, said } = await starting(context);
  await write('program.crt', acme.cert);
  await write('acme.yaml', 'tenant: acme\nagents: [{certificates: {trustDomain: plane.example}}]');
  const { tenancy } = await start({ 'cluster-ca-cert': join(dir, 'program.crt') });
  const hosts = [{ type: 'url', value: 'spiffe://plane.example/tenant/acme/agent/e7' }] as const;
  const { cert } = await acme.issue({ commonName: '', validMs: DAY, hosts: [...hosts], uses: ['client'] });
  const certificate = { leaf: certificateOf(new X509Certificate(cert).raw), sent: [] };
  const evidence = { certificate, source: '', signal: AbortSignal.timeout(60_000) };
  const grant = await tenancy.identify.agent(evidence);
  assert.equal(principalText(grant.principal), 'acme/agent/e7');
  const ended: string[] = [];
  grant.watch(({ message }) => void ended.push(message));
  await write('program.crt', 'nothing');
  await until(() => said.length > 1, 'nothing was reported');
  assert.match(said[1] ?? '', /^agents: .*program\.crt: there is no certificate \(PEM\) in it$/);
  await tenancy.identify.agent(evidence);
  await write('program.crt', other.cert);
  await until(() => ended.length > 0, 'nothing ended');
  await assert.rejects(tenancy.identify.agent(evidence), /not a trusted authority/);
});

test('a file of 10 MB, and one that is no YAML, disturb no other tenant', async (context) => {
  const { write, start, said } = await starting(context);
  const { agent, tenancy } = await start();
  await write('big.yaml', `tenant: big\n#${'x'.repeat(10_000_000)}`);
  await write('broken.yaml', 'tenant: [b');
  await write('big-ca.yaml', 'tenant: c\nagents: [{certificates: {ca: big.yaml}}]');
  await write('thief.yaml', 'tenant: thief\nagents: [{certificates: {ca: acme-ca.crt}}]');
  await until(() => tenancy.problems.length === 4, 'not all were reported');
  const problems = said.slice(1).sort();
  for (const [index, problem] of [
    /^big-ca\.yaml:2:30: agents\[0\]\.certificates\.ca: big\.yaml: it has 10000013 bytes: at most 1048576 are allowed/,
    /^big\.yaml:1:1: it has 10000013 bytes: at most 262144 are allowed/,
    /^broken\.yaml:1:11: /,
    /^thief\.yaml:2:30: agents\[0\]\.certificates\.ca: certificate authority CN=kubernetes is in acme\.yaml too/,
  ].entries())
    assert.match(problems[index] ?? '', problem);
  assert.equal(principalText((await agent(acme, 'e1')).principal), 'acme/agent/e1');
});
