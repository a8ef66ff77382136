import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CertificateAuthority, selfSigned } from '@isthmus/certificates';
import { Tenants } from './tenants.ts';
import { DAY, serverFiles, sourceOf, sourcesOf } from './testing.ts';

/** Each call reads anew, so that every file counts as changed. */
const files = sourcesOf;

test('tenants come, change and go with their files', async () => {
  const tenants = new Tenants();
  const [a, b, other] = await Promise.all(['tenant: a', 'tenant: b', LIMITED].map((text) => sourceOf(text)));
  assert.ok(a && b && other);
  assert.deepEqual(
    tenants.update(
      new Map([
        ['a', a],
        ['b', b],
      ]),
    ),
    { changed: ['a', 'b'], gone: [] },
  );
  assert.deepEqual(
    tenants.update(
      new Map([
        ['a', a],
        ['b', other],
      ]),
    ),
    { changed: ['b'], gone: [] },
  );
  assert.equal(tenants.get('b')?.limits.tunnels, 5);
  assert.deepEqual(tenants.update(new Map([['b', other]])), { changed: [], gone: ['a'] });
  assert.deepEqual(
    [...tenants.all].map(({ name }) => name),
    ['b'],
  );
});

const LIMITED = 'tenant: b\nlimits: {tunnels: 5}';

test('a file that cannot be used changes nothing, and is named', async () => {
  const tenants = new Tenants();
  tenants.update(await files({ a: 'tenant: a\nlimits: {tunnels: 5}', b: 'tenant: b' }));
  const bad = await files({ a: 'tenant: a\nlimits: {tunnels: x}', b: 'tenant: b\nlimits: {tunnels: 7}' });
  assert.deepEqual(tenants.update(bad), { changed: ['b'], gone: [] });
  assert.equal(tenants.get('a')?.limits.tunnels, 5);
  assert.deepEqual(
    tenants.problems.map(({ path, kept, problems }) => [path, kept, problems[0]?.line]),
    [['a', 'a', 2]],
  );
  assert.deepEqual(tenants.update(bad), { changed: [], gone: [] });
  assert.equal(tenants.get('a')?.limits.tunnels, 5);
  tenants.update(await files({ a: 'tenant: a', b: 'tenant: b' }));
  assert.deepEqual(tenants.problems, []);
});

test('what files leave as it is costs once, and not for each tenant', async () => {
  const tenants = new Tenants();
  tenants.update(await files({ a: 'tenant: a', b: 'tenant: b' }));
  const [a, b] = [...tenants.all];
  for (const part of ['claims', 'policy', 'limits', 'denials'] as const) assert.equal(a?.[part], b?.[part], part);
});

test('authorities and server names are found as long as a tenant has them', async () => {
  const { cert: ca } = await CertificateAuthority.create('one', DAY);
  const texts = { ...(await serverFiles()), ca };
  const agents = 'agents: [{certificates: {ca: ca, shared: true}}]';
  const server = (...names: string[]) => `server: {serverNames: [${names}], certificate: c, key: k}`;
  const text = (tenant: string, ...parts: string[]) => [`tenant: ${tenant}`, ...parts].join('\n');
  const tenants = new Tenants();
  const put = async (now: Record<string, string>) => void tenants.update(await files(now, texts));
  const owners = () => [...tenants.authorities.agent.owners(id)].sort();
  const named = (...names: string[]) => names.map((name) => tenants.byServerName(name)?.name);
  await put({ a: text('a', agents, server('x.example', "'*.y.example'")), b: text('b', agents) });
  const id = tenants.get('a')?.certificates.agent[0]?.trust?.all[0]?.authorityId ?? '';
  assert.deepEqual(owners(), ['a', 'b']);
  assert.deepEqual(named('x.example', 'z.y.example'), ['a', 'a']);
  await put({ a: text('a', agents), b: text('b', server('x.example', "'*.y.example'")) });
  assert.deepEqual(owners(), ['a']);
  assert.ok(tenants.authorities.agent.hasAuthority(id));
  assert.deepEqual(named('x.example', 'z.y.example'), ['b', 'b']);
  await put({ b: text('b') });
  assert.deepEqual(owners(), []);
  assert.ok(!tenants.authorities.agent.hasAuthority(id));
  assert.deepEqual(named('x.example', 'z.y.example'), [undefined, undefined]);
});

test('a file that cannot be used with the files that it names is refused, with the place', async () => {
  const { cert: ca } = await CertificateAuthority.create('one', DAY);
  const client = await selfSigned('x', ['client']);
  const texts = {
    ...(await serverFiles()),
    ca,
    otherKey: (await selfSigned('x')).key,
    client: client.cert,
    clientKey: client.key,
  };
  for (const [text, line, message] of [
    ['agents:\n  - {certificates: {ca: none}}', 3, /^none: there is no certificate \(PEM\) in it$/],
    ['agents:\n  - {certificates: {ca: c}}', 3, /^c: certificate 1 in it \(server\) is of no certificate authority/],
    ['server: {serverNames: [a], certificate: c, key: otherKey}', 2, /^otherKey: the key does not match/],
    ['server: {serverNames: [a], certificate: c, key: c}', 2, /^c: there is no usable private key/],
    [
      'server: {serverNames: [a], certificate: client, key: clientKey}',
      2,
      /^client: its extended key usage lacks serverAuth/,
    ],
    ['agents: [{tokens: {issuer: i, audience: a, keys: ca}}, {certificates: {ca: none}}]', 2, /^none/],
    ['agents: [{tokens: {issuer: i, audience: a, keys: none}}]', 2, /^none: there is no public key in it/],
    [
      'agents: [{certificates: {ca: ca}}]\ncallers: [{certificates: {ca: ca}}]',
      3,
      /^the agents' certificates are of the same CA, and could dial/,
    ],
  ] as const) {
    const tenants = new Tenants();
    tenants.update(await files({ a: `tenant: a\n${text}` }, texts));
    const [problem] = tenants.problems[0]?.problems ?? [];
    assert.match(problem?.message ?? '', message);
    assert.equal(problem?.line, line, text);
  }
});

test('a server name selects the tenant with the longest pattern', async () => {
  const server = (names: string) => `server: {serverNames: [${names}], certificate: c, key: k}`;
  const texts = { a: `tenant: a\n${server("'*.example'")}`, b: `tenant: b\n${server("b.x.example, '*.x.example'")}` };
  const tenants = new Tenants();
  tenants.update(await files(texts, await serverFiles()));
  assert.deepEqual(
    ['B.x.example', 'c.x.example.', 'x.example', 'y.z.example', 'example', ''].map(
      (name) => tenants.byServerName(name)?.name,
    ),
    ['b', 'b', 'a', 'a', undefined, undefined],
  );
});
