import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CertificateAuthority } from '@isthmus/certificates';
import { Tenants } from './tenants.ts';
import { DAY, publicKey, serverFiles, sourceOf, sourcesOf } from './testing.ts';

/** Each call reads anew, so that every file counts as changed. */
const files = sourcesOf;

test('a tenant whose name another file has stays with the file that had it', async () => {
  const tenants = new Tenants();
  tenants.update(await files({ z: 'tenant: acme' }));
  tenants.update(await files({ a: 'tenant: acme', z: 'tenant: acme' }));
  assert.equal(tenants.get('acme')?.path, 'z');
  assert.deepEqual(
    tenants.problems.map(({ path, problems }) => [path, problems[0]?.message]),
    [['a', 'tenant acme is in z too']],
  );
  // The name becomes free.
  tenants.update(await files({ a: 'tenant: acme' }));
  assert.equal(tenants.get('acme')?.path, 'a');
});

test('a file that is changed takes nothing from a tenant in force, whichever of them comes first by name', async () => {
  for (const change of ['unchanged', 'changed too', 'broken']) {
    const tenants = new Tenants();
    const ports = (...callers: number[]) => `callers: [${callers.map((port) => `{port: ${port}}`).join(', ')}]`;
    const [a, b] = [`tenant: a\n${ports(1)}`, `tenant: b\n${ports(2)}`];
    const before = await files({ a, b });
    tenants.update(before);
    const later = { 'changed too': `${b}\nlimits: {tunnels: 5}`, broken: 'tenant: [', unchanged: '' }[change] || b;
    const after = new Map(await files({ a: `tenant: a\n${ports(1, 2)}`, b: later }));
    const unchanged = before.get('b');
    if (change === 'unchanged' && unchanged) after.set('b', unchanged);
    tenants.update(after);
    assert.deepEqual([...tenants.all].map(({ name }) => name).sort(), ['a', 'b'], change);
    assert.deepEqual(
      tenants.problems.find(({ path }) => path === 'a')?.problems.map(({ message }) => message),
      ["callers' port 2 is in b too"],
      change,
    );
    // b gives it up.
    tenants.update(new Map([...after, ['b', await sourceOf('tenant: b')]]));
    assert.equal(tenants.get('a')?.file.callers?.length, 2, change);
    assert.deepEqual(tenants.problems, []);
  }
});

test('tenants exchange what each alone may have', async () => {
  const tenants = new Tenants();
  tenants.update(await files({ a: 'tenant: a\ncallers: [{port: 1}]', b: 'tenant: b\ncallers: [{port: 2}]' }));
  tenants.update(await files({ a: 'tenant: a\ncallers: [{port: 2}]', b: 'tenant: b\ncallers: [{port: 1}]' }));
  assert.deepEqual(tenants.problems, []);
  assert.deepEqual(
    [tenants.get('a'), tenants.get('b')].map((tenant) => tenant?.file.callers?.[0]?.port),
    [2, 1],
  );
});

const withPorts = (tenant: string, ...ports: number[]) =>
  `tenant: ${tenant}\ncallers: [${ports.map((port) => `{port: ${port}}`).join(', ')}]`;

const portsOf = (tenants: Tenants) =>
  Object.fromEntries([...tenants.all].map(({ name, file }) => [name, file.callers?.map(({ port }) => port)]));

const messages = (tenants: Tenants) =>
  Object.fromEntries(tenants.problems.map(({ path, problems }) => [path, problems.map(({ message }) => message)]));

test('a tenant whose new text clashes keeps what it had, also if another file has just taken it', async () => {
  const tenants = new Tenants();
  const c = withPorts('c', 3);
  tenants.update(await files({ a: withPorts('a', 2), b: withPorts('b', 1), c }));
  const changed = tenants.update(await files({ a: withPorts('a', 2, 1), b: withPorts('b', 3), c }));
  assert.deepEqual(portsOf(tenants), { a: [2], b: [1], c: [3] });
  assert.deepEqual(messages(tenants), { a: ["callers' port 1 is in b too"], b: ["callers' port 3 is in c too"] });
  assert.deepEqual(changed.gone, []);
  // c makes way for b, and so b for a.
  tenants.update(await files({ a: withPorts('a', 2, 1), b: withPorts('b', 3), c: withPorts('c', 4) }));
  assert.deepEqual([portsOf(tenants), messages(tenants)], [{ a: [2, 1], b: [3], c: [4] }, {}]);
});

test('a file gets what another one wanted, if that one keeps what it had', async () => {
  const tenants = new Tenants();
  tenants.update(await files({ a: withPorts('a', 1), b: withPorts('b', 2) }));
  tenants.update(await files({ a: withPorts('a', 2, 3), b: withPorts('b', 3) }));
  assert.deepEqual(portsOf(tenants), { a: [1], b: [3] });
  assert.deepEqual(messages(tenants), { a: ["callers' port 3 is in b too"] });
});

test('tenants begin to share what one of them had alone, in one update', async () => {
  const texts = { k: publicKey() };
  const tokens = (tenant: string, more = '') =>
    `tenant: ${tenant}\nagents: [{tokens: {issuer: i, audience: a, keys: k${more}}}]`;
  const tenants = new Tenants();
  tenants.update(await files({ a: 'tenant: a', b: tokens('b') }, texts));
  const shared = { a: tokens('a', ', shared: true'), b: tokens('b', ', shared: true') };
  // Only if b can share it.
  tenants.update(await files({ ...shared, b: `${shared.b}\nlimits: x` }, texts));
  assert.deepEqual(Object.keys(messages(tenants)), ['a', 'b']);
  tenants.update(await files(shared, texts));
  assert.deepEqual(messages(tenants), {});
  assert.deepEqual(
    [...tenants.all].map(({ file }) => file.agents?.[0]?.tokens?.shared),
    [true, true],
  );
});

test('whatever files claim, no tenant in force goes, and only what clashes is refused', async () => {
  let seed = 1;
  const random = (below: number) => {
    seed = (seed * 48271) % 2147483647;
    return seed % below;
  };
  const names = ['a', 'b', 'c', 'd', 'e'];
  const tenants = new Tenants();
  let refused = 0;
  for (let round = 0; round < 500; round++) {
    const before = portsOf(tenants);
    const wanted = Object.fromEntries(
      names.filter(() => random(8) > 0).map((name) => [name, [...new Set([random(9) + 1, random(9) + 1])]]),
    );
    const texts = Object.entries(wanted).map(([name, ports]) => [name, withPorts(name, ...ports)]);
    tenants.update(await files(Object.fromEntries(texts)));
    const [now, problems] = [portsOf(tenants), messages(tenants)];
    const used = Object.values(now).flat();
    assert.equal(new Set(used).size, used.length, 'two tenants have a port');
    for (const [name, ports] of Object.entries(wanted)) {
      const clash = problems[name];
      assert.deepEqual(now[name], clash ? before[name] : ports, `${name} in round ${round}`);
      if (!clash) continue;
      refused++;
      const others = ports.filter((port) => used.includes(port) && !now[name]?.includes(port));
      assert.equal(clash.length, others.length, `${name} in round ${round}: ${clash}`);
      assert.ok(others.length > 0);
    }
  }
  assert.ok(refused > 100);
});

test('what two tenants cannot both have, the second is refused', async () => {
  const server = await serverFiles();
  const { cert: ca } = await CertificateAuthority.create('one', DAY);
  const texts = { ...server, ca, other: (await CertificateAuthority.create('two', DAY)).cert };
  for (const [what, first, second] of [
    [
      'server name',
      'server: {serverNames: [x.example], certificate: c, key: k}',
      'server: {serverNames: [X.example], certificate: c, key: k}',
    ],
    ["agents' port", 'agents: [{certificates: {ca: ca}, port: 1}]', 'agents: [{certificates: {ca: other}, port: 1}]'],
    ["callers' port", 'callers: [{port: 1}]', 'callers: [{port: 1}]'],
    ['unix socket', 'callers: [{unixSocket: /s}]', 'callers: [{unixSocket: /s}]'],
    ['unix socket', 'callers: [{unixSocket: /run/s}]', 'callers: [{unixSocket: /run/s}]'],
    [
      'certificate authority CN=one',
      'agents: [{certificates: {ca: ca, shared: true}}]',
      'callers: [{certificates: {ca: ca}}]',
    ],
  ] as const) {
    const tenants = new Tenants();
    tenants.update(await files({ a: `tenant: a\n${first}`, b: `tenant: b\n${second}` }, texts));
    assert.deepEqual(
      [...tenants.all].map(({ name }) => name),
      ['a'],
    );
    assert.match(tenants.problems[0]?.problems[0]?.message ?? '', new RegExp(`^${what}.* is in a too$`));
  }
});

const SERVER =
  'current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nusers: [{name: u, user: {}}]\nclusters: [{name: k, cluster: {server: ';

test('tokens that two tenants would accept are a problem, unless both say so', async () => {
  const [one, other] = [publicKey(), publicKey()];
  const texts = {
    ...{ one, both: one + other, other },
    ...{
      k1: `${SERVER}'https://API.example'}}]`,
      k2: `${SERVER}'https://api.example:443/'}}]`,
      k3: `${SERVER}'https://b'}}]`,
    },
  };
  const tokens = (more: string) => `agents: [{tokens: {issuer: i, audience: a, ${more}}}]`;
  const review = (more: string) => `agents: [{tokenReview: {${more}}}]`;
  const key =
    /^token key ".+" of issuer "i" for audience "a" is in a too: let subject or audience differ, or say shared/;
  const url = /^the key set at https:\/\/x\.example\/ of issuer "i" for audience "a" is in a too/;
  const reviewed =
    /^tokenReview of kube-system\/konnectivity-agent at https:\/\/api\.example\/ for audience .* is in a too/;
  for (const [first, second, problem] of [
    [tokens('keys: one'), tokens('keys: both'), key],
    [tokens('keys: one'), tokens('keys: one, subject: s'), key],
    [tokens('keys: one, subject: s'), tokens('keys: one'), key],
    [tokens('keys: one, subject: s'), tokens('keys: one, subject: s'), key],
    [tokens('keys: one, shared: true'), tokens('keys: one'), key],
    [tokens('jwksUrl: "https://x.example"'), tokens('jwksUrl: "https://x.example/"'), url],
    [review('kubeconfig: k1'), review('kubeconfig: k2'), reviewed],
    [review('kubeconfig: k1, shared: true'), review('kubeconfig: k2'), reviewed],
    [tokens('keys: one'), tokens('keys: other'), undefined],
    [tokens('keys: one, subject: s'), tokens('keys: one, subject: t'), undefined],
    [tokens('keys: one'), 'agents: [{tokens: {issuer: i, audience: b, keys: one}}]', undefined],
    [tokens('keys: one, shared: true'), tokens('keys: one, shared: true'), undefined],
    [tokens('jwksUrl: "https://x.example"'), tokens('jwksUrl: "https://y.example/"'), undefined],
    [review('kubeconfig: k1'), review('kubeconfig: k3'), undefined],
    [review('kubeconfig: k1'), review('kubeconfig: k1, serviceAccount: other'), undefined],
    [review('kubeconfig: k1, shared: true'), review('kubeconfig: k2, shared: true'), undefined],
  ] as const) {
    const tenants = new Tenants();
    tenants.update(await files({ a: `tenant: a\n${first}`, b: `tenant: b\n${second}` }, texts));
    const [found] = tenants.problems;
    const row = `${first}\n${second}`;
    assert.deepEqual([found?.path, tenants.size], problem ? ['b', 1] : [undefined, 2], row);
    if (problem) assert.match(found?.problems[0]?.message ?? '', problem, row);
  }
});

test('two tenants share a certificate authority if both say so', async () => {
  const { cert: ca } = await CertificateAuthority.create('one', DAY);
  const agents = 'agents: [{certificates: {ca: ca, shared: true}}]';
  const tenants = new Tenants();
  tenants.update(await files({ a: `tenant: a\n${agents}`, b: `tenant: b\n${agents}` }, { ca }));
  assert.deepEqual(tenants.problems, []);
  assert.equal(tenants.size, 2);
});
