import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { FakeApiServer } from '@isthmus/kube/testing';
import { changed } from '@isthmus/runtime/testing';
import { NotAuthorised } from '@isthmus/tunnel';
import { UnsecuredJWT } from 'jose';
import { ADMISSION } from './defaults.ts';
import { Grants } from './grants.ts';
import { identifyBy } from './identify.ts';
import { readTenantFile } from './tenant-file.ts';
import { TenantTokens } from './tenant-tokens.ts';
import { type TenantSource, Tenants } from './tenants.ts';
import { Breaker } from './token-reviews.ts';

const TIMEOUT = { timeout: 60_000 };

const AGENT = 'system:serviceaccount:kube-system:konnectivity-agent';

const GOOD = { authenticated: true, user: { username: AGENT }, audiences: ['system:konnectivity-server'] };

const kubeconfig = ({ connection }: FakeApiServer) => `
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters:
  - name: k
    cluster:
      server: ${connection.server.origin}
      certificate-authority-data: ${Buffer.from(connection.ca ?? '').toString('base64')}
users: [{name: u, user: {token: ${connection.token}}}]
`;

/** A tenant whose agents' tokens are reviewed with a kubeconfig of its name. */
function reviewing(name: string, digest = '', fault?: string): TenantSource {
  return {
    read: readTenantFile(`tenant: ${name}\nagents: [{tokenReview: {kubeconfig: ${name}.conf}}]`),
    credentials: new Map([['agents[0].tokenReview.kubeconfig', { digest, ...(fault !== undefined && { fault }) }]]),
  };
}

/** Two tenants with an API server each, which reviews their agents' tokens. */
async function hosted(context: TestContext) {
  const dir = await mkdtemp(join(tmpdir(), 'reviews-'));
  const [a, b] = await Promise.all([FakeApiServer.start(), FakeApiServer.start()]);
  await writeFile(join(dir, 'a.conf'), kubeconfig(a));
  await writeFile(join(dir, 'b.conf'), kubeconfig(b));
  const tenants = new Tenants();
  const grants = new Grants({ tenant: (name) => tenants.get(name) });
  const tokens = new TenantTokens({
    role: 'agent',
    tenant: (name) => tenants.get(name),
    path: (named) => join(dir, named),
    rememberMs: 30_000,
    changed: () => {},
  });
  const running = setInterval(() => {}, 1000);
  context.after(async () => {
    clearInterval(running);
    tokens.close();
    grants.close();
    await Promise.all([a, b].map((api) => api[Symbol.asyncDispose]()));
    await rm(dir, { recursive: true });
  });
  const put = (...names: string[]) => replace(names);
  const replace = (names: readonly string[], digest?: string, fault?: string) => {
    const sources = names.map((name) => [`${name}.yaml`, reviewing(name, digest, fault)] as const);
    const { changed, gone } = tenants.update(new Map(sources));
    assert.equal(tenants.problems.length, fault === undefined ? 0 : names.length);
    tokens.update([...changed, ...gone]);
    grants.review([...changed, ...gone]);
  };
  put('a', 'b');
  const authority = identifyBy({ tenants, grants, tokens: { agent: tokens }, bundles: () => undefined });
  const prove = (token: string, tenant?: string) => {
    const { signal } = new AbortController();
    return authority.agent({ token, source: '10.0.0.1', signal, ...(tenant !== undefined && { tenant }) });
  };
  return { dir, a, b, put, replace, prove };
}

test("a token is reviewed at its tenant's own API server, once for a while", TIMEOUT, async (context) => {
  const { a, b, prove, put } = await hosted(context);
  b.reviews.set('of-b', GOOD);
  const { principal, watch } = await prove('of-b', 'b');
  assert.deepEqual(principal, {
    tenant: 'b',
    role: 'agent',
    name: AGENT,
    rule: 'b.yaml: agents[0].tokenReview',
    shared: true,
  });
  await prove('of-b', 'b');
  assert.deepEqual([a.calls.length, b.calls.length], [0, 1]);
  const error = await prove('of-b', 'a').catch((thrown: unknown) => thrown);
  assert.ok(error instanceof NotAuthorised && !error.undecided);
  assert.equal(error.message, 'the token was not accepted: lookup failed: service account jwt not valid');
  assert.equal(error.rule, 'a.yaml: agents[0].tokenReview');
  // Nobody is asked whose tenant is not known: the token would be shown to all.
  await assert.rejects(prove('of-b'), /not a signed JWT/);
  const ended = Promise.withResolvers<Error>();
  watch(ended.resolve);
  put('a');
  assert.match((await ended.promise).message, /agent .* is not authorised: its tenant was removed/);
});

test('a reviewed token ends when it says so', TIMEOUT, async (context) => {
  const { b, prove } = await hosted(context);
  const seconds = Math.floor(Date.now() / 1000) + 60;
  const token = new UnsecuredJWT({}).setExpirationTime(seconds).encode();
  b.reviews.set(token, GOOD);
  const ended = Promise.withResolvers<Error>();
  const { watch } = await prove(token, 'b');
  context.mock.timers.enable({ apis: ['Date', 'setInterval'], now: Date.now() });
  watch(ended.resolve);
  context.mock.timers.tick(60_000 + ADMISSION.expiryMs);
  assert.match((await ended.promise).message, /its credential expired at 20/);
  context.mock.timers.reset();
  const never = new UnsecuredJWT({ exp: -1e300 }).encode();
  b.reviews.set(never, GOOD);
  await assert.rejects(prove(never, 'b'), /its credential expired at 1970/);
});

test(
  "while a tenant's API server hangs, its agents hear so at once, and another tenant's get in",
  TIMEOUT,
  async (context) => {
    using _ = changed(ADMISSION, { tokenReviewMs: 1500, tokenReviewRestMs: 600_000 });
    const { a, b, prove } = await hosted(context);
    b.reviews.set('good', GOOD);
    // From now on a's reviews have that time, and b's all that they need.
    await prove('first', 'a').catch(() => {});
    ADMISSION.tokenReviewMs = 60_000;
    a.intercept = () => true;
    const before = a.calls.length;
    const flood = Array.from({ length: 100 }, (_, i) => prove(`token-${i}`, 'a').catch((error: unknown) => error));
    assert.equal((await prove('good', 'b')).principal.tenant, 'b');
    for (const error of await Promise.all(flood))
      assert.ok(error instanceof NotAuthorised && error.undecided, String(error));
    const asked = a.calls.length;
    assert.ok(asked - before <= 12, `it was asked ${asked - before} times`);
    await assert.rejects(
      prove('late', 'a'),
      /it failed \d+ times in a row, and is asked again in \d+ s: .*no answer within 1500 ms/,
    );
    assert.equal(a.calls.length, asked);
  },
);

test("an endless answer of a tenant's API server is not read", TIMEOUT, async (context) => {
  using _ = changed(ADMISSION, { tokenReviewMs: 60_000 });
  const { a, b, prove } = await hosted(context);
  let read = 0;
  a.intercept = (_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    response.write(JSON.stringify({ status: GOOD, more: '' }).slice(0, -2));
    const more = () => {
      while (!response.destroyed && read < 64 * ADMISSION.tokenReviewBytes) {
        read += 65_536;
        if (!response.write('{},'.repeat(21_845))) return;
      }
      response.end('"}');
    };
    response.on('drain', more);
    more();
    return true;
  };
  b.reviews.set('good', GOOD);
  await assert.rejects(prove('good', 'a'), /the answer is longer than 262144 bytes/);
  assert.equal((await prove('good', 'b')).principal.tenant, 'b');
});

test(
  'a kubeconfig that changed, as with another CA, judges anew what was refused, and ends no session',
  TIMEOUT,
  async (context) => {
    const { dir, a, b, prove, replace } = await hosted(context);
    b.reviews.set('good', GOOD);
    const { watch } = await prove('good', 'b');
    const ended: Error[] = [];
    watch((reason) => ended.push(reason));
    await assert.rejects(prove('late', 'b'), /service account jwt not valid/);
    for (const api of [a, b]) api.reviews.set('late', GOOD);
    await assert.rejects(prove('late', 'b'), /service account jwt not valid/, 'a refusal holds for a while');
    // Another API server and CA.
    await writeFile(join(dir, 'b.conf'), kubeconfig(a));
    replace(['a', 'b'], 'another');
    assert.equal((await prove('late', 'b')).principal.tenant, 'b');
    await assert.rejects(prove('good', 'b'), /service account jwt not valid/, 'the new one has not accepted it');
    assert.deepEqual(ended, []);
  },
);

test('a kubeconfig that cannot be read holds up its tenant alone, and is read again', TIMEOUT, async (context) => {
  const { dir, b, put, prove } = await hosted(context);
  b.reviews.set('good', GOOD);
  const now = performance.now();
  const late = () => prove('good', 'c');
  put('b', 'c');
  for (let i = 0; i < 4; i++) await assert.rejects(late(), /c\.conf/);
  await writeFile(join(dir, 'c.conf'), kubeconfig(b));
  await assert.rejects(late(), /asked again in/);
  assert.equal((await prove('good', 'b')).principal.tenant, 'b');
  context.mock.method(performance, 'now', () => now + 30_000);
  assert.equal((await late()).principal.tenant, 'c');
});

test('a kubeconfig that led nowhere when it was read is not used until it was read again', TIMEOUT, async (context) => {
  const { dir, b, replace, prove } = await hosted(context);
  b.reviews.set('good', GOOD);
  replace(['b'], 'cut', 'the file is not a mapping');
  await assert.rejects(prove('good', 'b'), (error) => {
    assert.ok(error instanceof NotAuthorised && error.undecided);
    assert.equal(error.message, `the token was not accepted: kubeconfig ${dir}/b.conf: the file is not a mapping`);
    return true;
  });
  assert.deepEqual(b.calls, []);
  replace(['b'], 'whole');
  assert.equal((await prove('good', 'b')).principal.tenant, 'b');
});

test("tokens of strangers push no tenant's reviewer out that has accepted one", TIMEOUT, async (context) => {
  const { b, put, prove } = await hosted(context);
  b.reviews.set('good', GOOD);
  const others = Array.from({ length: 600 }, (_, i) => `t${i}`);
  put('b', ...others);
  await prove('good', 'b');
  for (const tenant of others) await assert.rejects(prove('junk', tenant), /\.conf/);
  await prove('good', 'b');
  assert.equal(b.calls.length, 1, 'the answer was remembered');
});

test('a breaker lets one try at a time', (context) => {
  let now = 0;
  context.mock.method(performance, 'now', () => now);
  const breaker = new Breaker();
  const asks = () => breaker.refusal === undefined;
  const fail = () => breaker.failed('away');
  for (let i = 0; i < 3; i++) {
    assert.equal(asks(), true);
    fail();
  }
  assert.equal(breaker.refusal, 'it failed 3 times in a row, and is asked again in 10 s: away');
  now = 10_000;
  assert.deepEqual([asks(), asks()], [true, false]);
  fail();
  now = 19_999;
  assert.equal(asks(), false);
  now = 20_000;
  assert.equal(asks(), true);
  breaker.succeeded();
  assert.deepEqual([asks(), asks()], [true, true]);
});
