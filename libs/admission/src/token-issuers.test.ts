import assert from 'node:assert/strict';
import type { KeyObject } from 'node:crypto';
import { test } from 'node:test';
import { keyPair as pair } from '@isthmus/runtime/testing';
import { exportJWK, SignJWT } from 'jose';
import { TokenIssuers, type TokenWay } from './token-issuers.ts';
import { readTokenKeys, type TokenKeys, TokenRejected, UnknownKey } from './tokens.ts';

const ISSUER = 'https://kubernetes.default.svc';

const pem = (key: KeyObject) => readTokenKeys(key.export({ format: 'pem', type: 'spki' }) as string);

const jwks = async (key: KeyObject, kid: string) =>
  readTokenKeys(JSON.stringify({ keys: [{ ...(await exportJWK(key)), kid }] }));

function way(tenant: string, keys: TokenKeys, rules: { subject?: string; audience?: string } = {}): TokenWay {
  return {
    tenant,
    rule: `${tenant}.yaml: agents[0].tokens`,
    keys,
    rules: { issuer: ISSUER, audience: 'hub', ...rules },
  };
}

function token(key: KeyObject, kid?: string, { subject = 'agent', audience = 'hub', issuer = ISSUER } = {}) {
  return new SignJWT({})
    .setProtectedHeader({ alg: 'ES256', ...(kid !== undefined && { kid }) })
    .setIssuer(issuer)
    .setAudience(audience)
    .setSubject(subject)
    .setExpirationTime('1h')
    .sign(key);
}

/** Tenants that all have the same issuer's name, as hosted clusters do, each with a key of its own. */
async function plane(...tenants: string[]) {
  const issuers = new TokenIssuers();
  const keys = new Map<string, { readonly sign: KeyObject; readonly id: string }>();
  for (const tenant of tenants) {
    const { publicKey, privateKey } = pair();
    const read = await pem(publicKey);
    keys.set(tenant, { sign: privateKey, id: read[0]?.id ?? '' });
    issuers.put(tenant, [way(tenant, read)]);
  }
  const of = (tenant: string) => keys.get(tenant) as { sign: KeyObject; id: string };
  return { issuers, of };
}

test("tenants with one issuer's name are told apart by the key", async () => {
  const { issuers, of } = await plane('a', 'b', 'c');
  for (const tenant of ['a', 'b', 'c']) {
    const proof = await issuers.verify(await token(of(tenant).sign, of(tenant).id), undefined);
    assert.deepEqual([proof.tenant, proof.subject, proof.rule], [tenant, 'agent', `${tenant}.yaml: agents[0].tokens`]);
  }
  // The key id is only said: the signature decides.
  assert.equal((await issuers.verify(await token(of('a').sign, of('b').id), undefined)).tenant, 'a');
  const forged = issuers.verify(await token(pair().privateKey, of('b').id), undefined);
  await assert.rejects(forged, { message: 'its signature does not match' });
});

test('a token without a key id is of the tenant whose key signed it', async () => {
  const { issuers, of } = await plane('a', 'b');
  const nameless = await token(of('b').sign);
  assert.equal((await issuers.verify(nameless, undefined)).tenant, 'b');
  assert.equal((await issuers.verify(nameless, 'b')).tenant, 'b');
  await assert.rejects(issuers.verify(nameless, 'a'), /signature/);
  await assert.rejects(issuers.verify(nameless, 'nobody'), /its issuer .* is not one of tenant nobody/);
});

test("a tenant that lists another's key id, for a key of its own, disturbs nobody", async () => {
  const [own, other] = [pair(), pair()];
  const issuers = new TokenIssuers();
  issuers.put('a', [way('a', await jwks(own.publicKey, 'k'))]);
  for (const tenant of ['b', 'c', 'd']) issuers.put(tenant, [way(tenant, await jwks(pair().publicKey, 'k'))]);
  issuers.put('e', [way('e', await jwks(other.publicKey, 'k'))]);
  assert.equal((await issuers.verify(await token(own.privateKey, 'k'), undefined)).tenant, 'a');
  assert.equal((await issuers.verify(await token(other.privateKey, 'k'), undefined)).tenant, 'e');
  await assert.rejects(issuers.verify(await token(pair().privateKey, 'k'), undefined), /signature does not match/);
});

test('a token costs few verifications, however many tenants it may be of, and none when it comes again', async (context) => {
  const issuers = new TokenIssuers();
  const add = async (tenant: string) => issuers.put(tenant, [way(tenant, await jwks(pair().publicKey, 'k'))]);
  for (let i = 0; i < 8; i++) await add(`t${i}`);
  const verify = context.mock.method(crypto.subtle, 'verify');
  const junk = await token(pair().privateKey, 'k');
  for (let i = 0; i < 3; i++) await assert.rejects(issuers.verify(junk, undefined), /signature does not match/);
  assert.equal(verify.mock.callCount(), 8);
  // Another key may have signed it.
  await add('t7');
  await assert.rejects(issuers.verify(junk, undefined), /signature does not match/);
  assert.equal(verify.mock.callCount(), 16);
  for (let i = 8; i < 50; i++) await add(`t${i}`);
  await assert.rejects(issuers.verify(junk, undefined), /cannot be told apart/);
  assert.equal(verify.mock.callCount(), 16);
});

test("many keys of one tenant do not hide another's", async (context) => {
  const verify = context.mock.method(crypto.subtle, 'verify');
  const manyKeys = async (kid?: string) =>
    readTokenKeys(
      JSON.stringify({
        keys: await Promise.all(
          Array.from({ length: 20 }, async () => ({ ...(await exportJWK(pair().publicKey)), ...(kid && { kid }) })),
        ),
      }),
    );
  const { publicKey, privateKey } = pair();
  const [named, nameless] = [await jwks(publicKey, 'k'), await pem(publicKey)];
  for (const [keys, kid] of [
    [named, undefined],
    [named, 'k'],
    [nameless, undefined],
    [nameless, nameless[0]?.id],
    [nameless, 'of its own'],
  ] as const) {
    const issuers = new TokenIssuers();
    for (const tenant of ['greedy', 'eager']) {
      const ways = [way(tenant, await manyKeys(kid)), way(tenant, await manyKeys())];
      issuers.put(tenant, ways);
      if (tenant === 'greedy') issuers.put('modest', [way('modest', keys)]);
    }
    const shown = await token(privateKey, kid);
    assert.equal((await issuers.verify(shown, undefined)).tenant, 'modest', `key id ${kid}`);
    verify.mock.resetCalls();
    await assert.rejects(issuers.verify(await token(pair().privateKey, kid), undefined), /does not match/);
    const verified = verify.mock.callCount();
    assert.ok(
      verified > 0 && verified <= 18,
      `${verified} verifications: four keys of each tenant, with the key id and without`,
    );
  }
});

test('of a tenant that is known by port or server name, twice as many keys are tried', async () => {
  const pairs = Array.from({ length: 9 }, pair);
  const keys = await Promise.all(pairs.map(({ publicKey }) => pem(publicKey)));
  const issuers = new TokenIssuers();
  issuers.put('a', [way('a', keys.flat())]);
  const shown = (index: number) => token((pairs[index] as (typeof pairs)[number]).privateKey);
  assert.equal((await issuers.verify(await shown(3), undefined)).tenant, 'a');
  await assert.rejects(issuers.verify(await shown(4), undefined), /signature does not match/);
  assert.equal((await issuers.verify(await shown(7), 'a')).tenant, 'a');
  await assert.rejects(issuers.verify(await shown(8), 'a'), /signature does not match/);
});

test("what a URL serves takes no other tenant's tokens", async () => {
  const [ofA, ofB] = [pair(), pair()];
  const [keysOfA, keysOfB] = [await jwks(ofA.publicKey, 'a'), await jwks(ofB.publicKey, 'b')];
  const [shown, shownByB] = [await token(ofA.privateKey, 'a'), await token(ofB.privateKey, 'b')];
  const published = (tenant: string, ...keys: TokenKeys[]) => ({ ...way(tenant, keys.flat()), published: true });
  const issuers = new TokenIssuers();
  issuers.put('b', [published('b', keysOfB, keysOfA)]);
  // Nobody else has the issuer.
  assert.equal((await issuers.verify(shownByB, undefined)).tenant, 'b');
  // The keys of a were not fetched yet: b publishes them, too.
  issuers.put('a', [published('a')]);
  await assert.rejects(issuers.verify(shown, undefined), /cannot be told apart/);
  issuers.put('a', [published('a', keysOfA)]);
  await assert.rejects(issuers.verify(shown, undefined), /cannot be told apart/);
  assert.equal((await issuers.verify(shown, 'a')).tenant, 'a');
  assert.equal((await issuers.verify(shownByB, 'b')).tenant, 'b');
  // The keys that a file names are its tenant's.
  issuers.put('a', [way('a', keysOfA)]);
  assert.equal((await issuers.verify(shown, undefined)).tenant, 'a');
  await assert.rejects(issuers.verify(shown, 'b'), /in another tenant's file/);
  issuers.put('a', [{ ...way('a', keysOfA), shared: true }]);
  issuers.put('b', [{ ...published('b', keysOfA), shared: true }]);
  assert.equal((await issuers.verify(shown, 'b')).tenant, 'b');
});

test('a key that two tenants share does not decide, and their rules do', async () => {
  const { publicKey, privateKey } = pair();
  const keys = await jwks(publicKey, 'k');
  const issuers = new TokenIssuers();
  issuers.put('a', [way('a', keys, { subject: 'agent-of-a' })]);
  issuers.put('b', [way('b', keys, { subject: 'agent-of-b' })]);
  const shown = (subject: string) => token(privateKey, 'k', { subject });
  assert.equal((await issuers.verify(await shown('agent-of-b'), undefined)).tenant, 'b');
  await assert.rejects(issuers.verify(await shown('agent-of-c'), undefined), /no tenant of its issuer wants/);
  issuers.put('c', [way('c', keys, { subject: 'agent-of-b' })]);
  await assert.rejects(issuers.verify(await shown('agent-of-b'), undefined), /cannot be told apart/);
});

test('what is wrong with a token is said', async () => {
  const { publicKey, privateKey } = pair();
  const issuers = new TokenIssuers();
  issuers.put('a', [way('a', await jwks(publicKey, 'k'))]);
  const rejection = async (...args: Parameters<typeof token>) =>
    issuers.verify(await token(...args), undefined).then(
      () => undefined,
      (error: Error) => error,
    );
  const unknown = await rejection(privateKey, 'new');
  assert.ok(unknown instanceof UnknownKey);
  assert.equal(unknown.message, `none of the issuer's keys has its key id ("new")`);
  for (const [claims, message] of [
    [
      { issuer: 'https://x' },
      'its issuer "https://x" is not one of any tenant, and neither server name nor port nor --tenant says whose token it is',
    ],
    [{ audience: 'api' }, 'its aud is "api", expected "hub"'],
  ] as const) {
    const error = await rejection(privateKey, 'k', claims);
    assert.ok(error instanceof TokenRejected && !(error instanceof UnknownKey));
    assert.equal(error.message, message);
  }
});

test('a token stands while its tenant has the key, and the rule that accepted it', async () => {
  const { issuers, of } = await plane('a', 'b');
  const proof = await issuers.verify(await token(of('a').sign, of('a').id), undefined);
  const { keys } = way('a', await pem(pair().publicKey));
  const own = await pem(pair().publicKey);
  assert.equal(issuers.stands(proof), true);
  issuers.put('a', [way('a', [...keys, proof.key])]);
  assert.equal(issuers.stands(proof), true, 'another key came');
  issuers.put('a', [way('a', [proof.key], { audience: 'other' })]);
  assert.equal(issuers.stands(proof), false, 'another audience');
  issuers.put('a', [way('a', [proof.key], { subject: 'other' })]);
  assert.equal(issuers.stands(proof), false, 'another subject');
  issuers.put('a', [way('a', own)]);
  assert.equal(issuers.stands(proof), false, 'the key was removed');
  issuers.put('a', []);
  assert.equal(issuers.stands(proof), false, 'the tenant was removed');
  await assert.rejects(issuers.verify(await token(of('a').sign, of('a').id), undefined), /key id|signature/);
});
