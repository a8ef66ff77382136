import assert from 'node:assert/strict';
import type { KeyObject } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { changed, keyPair as pair, until } from '@isthmus/runtime/testing';
import { NotAuthorised } from '@isthmus/tunnel';
import { exportJWK, SignJWT } from 'jose';
import { ADMISSION } from './defaults.ts';
import { Grants } from './grants.ts';
import { identifyBy } from './identify.ts';
import { TenantTokens } from './tenant-tokens.ts';
import { TenantsDir } from './tenants-dir.ts';

const TIMEOUT = { timeout: 60_000 };

const spki = (key: KeyObject) => key.export({ format: 'pem', type: 'spki' }) as string;

const jwks = async (keys: Readonly<Record<string, KeyObject>>) =>
  JSON.stringify({
    keys: await Promise.all(Object.entries(keys).map(async ([kid, key]) => ({ ...(await exportJWK(key)), kid }))),
  });

interface Shown {
  readonly issuer?: string;
  readonly kid?: string;
  readonly expires?: string | number;
}

function token(key: KeyObject, { issuer = 'https://issuer.example', kid, expires = '1h' }: Shown = {}) {
  return new SignJWT({})
    .setProtectedHeader({ alg: 'ES256', ...(kid !== undefined && { kid }) })
    .setIssuer(issuer)
    .setAudience('hub')
    .setSubject('system:serviceaccount:kube-system:konnectivity-agent')
    .setExpirationTime(expires)
    .sign(key);
}

/** Who agents with tokens are, by tenants' files in a directory. */
async function plane(context: TestContext) {
  const dir = await mkdtemp(join(tmpdir(), 'tokens-'));
  const directory = new TenantsDir({
    dir,
    failing: (problems) => assert.deepEqual(problems, []),
    changed({ changed, gone }) {
      tokens.update([...changed, ...gone]);
      grants.review([...changed, ...gone]);
    },
  });
  const { tenants } = directory;
  const grants = new Grants({ tenant: (name) => tenants.get(name) });
  const tokens = new TenantTokens({
    role: 'agent',
    tenant: (name) => tenants.get(name),
    path: (named) => join(dir, named),
    rememberMs: 30_000,
    changed: (names) => grants.review(names),
  });
  await directory.read();
  // Their own timers keep no process running.
  const running = setInterval(() => {}, 1000);
  context.after(async () => {
    clearInterval(running);
    for (const each of [directory, grants, tokens]) each.close();
    await rm(dir, { recursive: true });
  });
  const write = async (name: string, text: string) => {
    await writeFile(join(dir, 'new'), text);
    await rename(join(dir, 'new'), join(dir, name));
    await directory.look();
  };
  const put = (name: string, agents: string) => write(`${name}.yaml`, `tenant: ${name}\nagents: ${agents}`);
  const remove = async (name: string) => {
    await rm(join(dir, `${name}.yaml`));
    await directory.look();
  };
  const authority = identifyBy({ tenants, grants, tokens: { agent: tokens }, bundles: () => undefined });
  const { signal } = new AbortController();
  const prove = (token: string, tenant?: string) =>
    authority.agent({ token, source: '10.0.0.1', signal, ...(tenant !== undefined && { tenant }) });
  const refusal = async (text: string, tenant?: string) => {
    const error = await prove(text, tenant).then(
      () => assert.fail('the token was accepted'),
      (thrown: unknown) => thrown,
    );
    assert.ok(error instanceof NotAuthorised, String(error));
    return error;
  };
  return { tokens, write, put, remove, prove, refusal };
}

async function endpoint(context: TestContext, listener: RequestListener) {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const tokensOf = (keys: string) => `[{tokens: {issuer: "https://issuer.example", audience: hub, ${keys}}}]`;

test("a token is of the tenant whose file has its issuer's key", TIMEOUT, async (context) => {
  const { write, put, prove, refusal } = await plane(context);
  const [a, b] = [pair(), pair()];
  await write('a.pem', spki(a.publicKey));
  await write('b.json', await jwks({ k: b.publicKey }));
  await put('a', tokensOf('keys: a.pem'));
  await put('b', tokensOf('keys: b.json'));
  const { principal } = await prove(await token(b.privateKey, { kid: 'k' }));
  const name = 'system:serviceaccount:kube-system:konnectivity-agent';
  assert.deepEqual(principal, { tenant: 'b', role: 'agent', name, rule: 'b.yaml: agents[0].tokens', shared: true });
  const error = await refusal(await token(b.privateKey, { kid: 'k' }), 'a');
  assert.equal(error.message, 'the token was not accepted: its signature does not match');
  assert.equal(error.rule, 'a.yaml: agents');
});

test('who stood on a key that went is told, and nobody else', TIMEOUT, async (context) => {
  const { write, put, remove, prove, refusal } = await plane(context);
  const [old, fresh] = [pair(), pair()];
  await write('keys.json', await jwks({ old: old.publicKey }));
  await put('a', tokensOf('keys: keys.json'));
  const byOld = await prove(await token(old.privateKey, { kid: 'old' }));
  const [ended, undisturbed] = [Promise.withResolvers<Error>(), Promise.withResolvers<Error>()];
  byOld.watch(ended.resolve);
  await write('keys.json', await jwks({ old: old.publicKey, fresh: fresh.publicKey }));
  const byFresh = await prove(await token(fresh.privateKey, { kid: 'fresh' }));
  byFresh.watch(undisturbed.resolve);
  await write('keys.json', await jwks({ fresh: fresh.publicKey }));
  const first = await Promise.race([ended.promise, undisturbed.promise]);
  assert.match(
    first.message,
    /the key or the entry that accepted its token was removed \(a\.yaml: agents\[0\]\.tokens\)/,
  );
  assert.match((await refusal(await token(old.privateKey, { kid: 'old' }))).message, /key id \("old"\)/);
  const sets = await Promise.race([undisturbed.promise, prove(await token(fresh.privateKey, { kid: 'fresh' }))]);
  assert.ok('principal' in sets && !(sets instanceof Error));
  await remove('a');
  assert.match((await undisturbed.promise).message, /its tenant was removed/);
});

test('a token ends when it expires', TIMEOUT, async (context) => {
  const { write, put, prove } = await plane(context);
  const { publicKey, privateKey } = pair();
  await write('k.pem', spki(publicKey));
  await put('a', tokensOf('keys: k.pem'));
  const ended = Promise.withResolvers<Error>();
  const proven = await prove(await token(privateKey, { expires: Math.floor(Date.now() / 1000) + 60 }));
  context.mock.timers.enable({ apis: ['Date', 'setInterval'], now: Date.now() });
  proven.watch(ended.resolve);
  context.mock.timers.tick(60_000 + ADMISSION.expiryMs);
  assert.match((await ended.promise).message, /its credential expired at 20/);
  context.mock.timers.reset();
});

test('a JWKS is fetched, and again when a token names a key that it lacked', TIMEOUT, async (context) => {
  const { put, prove, refusal } = await plane(context);
  const [old, fresh, forged] = [pair(), pair(), pair()];
  let [body, fetched] = [await jwks({ old: old.publicKey }), 0];
  const url = await endpoint(context, (_request, response) => {
    fetched++;
    response.end(body);
  });
  await put('a', tokensOf(`jwksUrl: "${url}/keys"`));
  await prove(await token(old.privateKey, { kid: 'old' }));
  assert.equal(fetched, 1);
  body = await jwks({ old: old.publicKey, fresh: fresh.publicKey });
  // Anyone may send tokens, so the URL is fetched for them only now and then.
  const junk = async () => (await refusal(await token(forged.privateKey, { kid: 'none' }))).message;
  assert.match(await junk(), /none of the issuer's keys has its key id \("none"\)/);
  await junk();
  await refusal(await token(forged.privateKey, { issuer: 'https://unknown.example', kid: 'none' }));
  assert.equal(fetched, 1);
  const { mock } = context;
  const now = performance.now();
  mock.method(performance, 'now', () => now + 20_000);
  await prove(await token(fresh.privateKey, { kid: 'fresh' }));
  for (let i = 0; i < 20; i++) await junk();
  assert.equal(fetched, 2);
});

for (const [what, answer, problem] of [
  ['hangs', () => {}, /no answer within 0.5 s/],
  ['has no keys', (_, response) => void response.end('{"keys": []}'), /no public key/],
  ['says nonsense', (_, response) => void response.end('<html>'), /no public key/],
  ['fails', (_, response) => void response.writeHead(500).end(), /status 500/],
  [
    'redirects',
    (_, response) => void response.writeHead(302, { location: 'http://127.0.0.1:1/' }).end(),
    /redirects to http:\/\/127\.0\.0\.1:1\//,
  ],
  [
    'hangs up',
    (_, response) => void response.writeHead(200, { 'content-length': '100' }).write('{', () => response.destroy()),
    /aborted|early|hang up/,
  ],
  [
    'serves 100 MB',
    async (_, response) => {
      response.writeHead(200);
      const chunk = Buffer.alloc(1024 * 1024, ' ');
      for (let i = 0; i < 100 && !response.destroyed; i++)
        if (!response.write(chunk)) await Promise.race([once(response, 'drain'), once(response, 'close')]);
      response.end();
    },
    /longer than 1048576 bytes/,
  ],
] as readonly (readonly [string, RequestListener, RegExp])[]) {
  test(
    `while a JWKS endpoint ${what}, keys that were there stay in force, and other tenants' agents get in`,
    TIMEOUT,
    async (context) => {
      const { tokens, write, put, prove, refusal } = await plane(context);
      const [a, b] = [pair(), pair()];
      let good = true;
      const body = await jwks({ k: a.publicKey });
      const url = await endpoint(context, (request, response) =>
        good ? response.end(body) : answer(request, response),
      );
      await put('a', tokensOf(`jwksUrl: "${url}"`));
      await prove(await token(a.privateKey, { kid: 'k' }));
      good = false;
      // An answer that is on its way may take its time.
      using _ = changed(ADMISSION, what === 'hangs' ? { keysFetchMs: 500 } : {});
      const now = performance.now();
      context.mock.method(performance, 'now', () => now + 400_000);
      // By now the URL is due.
      await write('b.pem', spki(b.publicKey));
      await put('b', tokensOf('keys: b.pem'));
      assert.equal((await prove(await token(b.privateKey, { kid: 'b' }))).principal.tenant, 'b');
      context.mock.reset();
      await until(() => problem.test(tokens.problems[0]?.problems[0]?.message ?? ''), {
        what: () => JSON.stringify(tokens.problems),
      });
      // By now b has the same issuer: a server that answers for a URL could publish another tenant's key.
      const ofA = await token(a.privateKey, { kid: 'k' });
      assert.match((await refusal(ofA)).message, /cannot be told apart/);
      assert.equal((await prove(ofA, 'a')).principal.tenant, 'a');
    },
  );
}

test("a tenant's many URLs that hang delay no other tenant's keys", TIMEOUT, async (context) => {
  // Those that hang do so until the end.
  using _ = changed(ADMISSION, { keysFetchMs: TIMEOUT.timeout });
  const { put, prove } = await plane(context);
  let hanging = 0;
  const hangs = await endpoint(context, () => void hanging++);
  const [key, fresh] = [pair(), pair()];
  let published = await jwks({ k: key.publicKey });
  const good = await endpoint(context, (_request, response) => void response.end(published));
  const urls = Array.from({ length: 2 * ADMISSION.keysFetches }, (_, n) => `${hangs}/${n}`);
  const entry = (url: string) => tokensOf(`jwksUrl: "${url}"`).slice(1, -1);
  const loud = urls.map((url) => entry(url).replace('issuer.example', 'loud.example'));
  await put('loud', `[${loud}]`);
  await until(() => hanging > 0);
  await put('quiet', tokensOf(`jwksUrl: "${good}"`));
  const shown = await token(key.privateKey, { kid: 'k' });
  assert.equal((await prove(shown, 'quiet')).principal.tenant, 'quiet');
  // It names the other's issuer and URL too, and its file is the newest.
  await put('loud', `[${loud}, ${entry(good).replace('audience: hub', 'audience: loud')}]`);
  published = await jwks({ k: key.publicKey, fresh: fresh.publicKey });
  const now = performance.now();
  context.mock.method(performance, 'now', () => now + 2 * ADMISSION.keysAgainMs);
  assert.equal((await prove(await token(fresh.privateKey, { kid: 'fresh' }))).principal.tenant, 'quiet');
  assert.ok(hanging <= ADMISSION.keysFetchesOfTenant, `${hanging} at once`);
});
