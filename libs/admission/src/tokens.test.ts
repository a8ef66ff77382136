import assert from 'node:assert/strict';
import { createHmac, type KeyObject } from 'node:crypto';
import { describe, it } from 'node:test';
import { keyPair as ec } from '@isthmus/runtime/testing';
import { exportJWK, SignJWT } from 'jose';
import { TokenIssuers } from './token-issuers.ts';
import { readTokenKeys, type TokenKeys, TokenRejected } from './tokens.ts';

const RULES = { issuer: 'https://issuer.example', audience: 'plane', subject: 'agent' };

const spki = (key: KeyObject) => key.export({ format: 'pem', type: 'spki' }) as string;

interface Claims {
  readonly issuer?: string;
  readonly audience?: string | string[];
  readonly subject?: string;
  readonly expires?: string | number;
  readonly from?: string;
}

function signed(key: KeyObject, claims: Claims = {}, header: object = {}): Promise<string> {
  const { issuer = RULES.issuer, audience = RULES.audience, subject = RULES.subject, expires = '2h', from } = claims;
  const token = new SignJWT({})
    .setProtectedHeader({ alg: 'ES256', ...header })
    .setIssuer(issuer)
    .setAudience(audience)
    .setSubject(subject)
    .setExpirationTime(expires);
  return (from === undefined ? token : token.setNotBefore(from)).sign(key);
}

function verifier(keys: TokenKeys) {
  const issuers = new TokenIssuers();
  issuers.put('a', [{ tenant: 'a', rule: 'a.yaml: agents[0].tokens', rules: RULES, keys }]);
  return (token: string) => issuers.verify(token, 'a');
}

async function rejection(verify: (token: string) => Promise<unknown>, token: string): Promise<string> {
  try {
    await verify(token);
  } catch (error) {
    assert.ok(error instanceof TokenRejected);
    return error.message;
  }
  return 'accepted';
}

describe('a token', () => {
  const pair = ec();
  const keys = readTokenKeys(spki(pair.publicKey));

  it('of the issuer is accepted without asking anyone, until it expires', async () => {
    const verify = verifier(await keys);
    const { subject, expires } = await verify(await signed(pair.privateKey, { expires: 4_000_000_000 }));
    assert.deepEqual([subject, expires], ['agent', 4_000_000_000_000]);
    assert.equal(
      await rejection(verify, await signed(pair.privateKey, { expires: 1_600_000_000 })),
      'it expired at 2020-09-13T12:26:40.000Z by the clock here',
    );
  });

  it('is valid for 10 s after its end: clocks differ', async () => {
    const ended = (seconds: number) => Math.floor(Date.now() / 1000) - seconds;
    const verify = verifier(await keys);
    await verify(await signed(pair.privateKey, { expires: ended(1) }));
    assert.match(await rejection(verify, await signed(pair.privateKey, { expires: ended(10) })), /it expired at/);
  });

  const rows: [what: string, token: () => Promise<string>, reason: RegExp][] = [
    ['another key signed', () => signed(ec().privateKey), /signature does not match/],
    ['is of another issuer', () => signed(pair.privateKey, { issuer: 'x' }), /its issuer "x" is not one of tenant a/],
    ['is for another audience', () => signed(pair.privateKey, { audience: 'x' }), /its aud is "x", expected "plane"/],
    ['is of another subject', () => signed(pair.privateKey, { subject: 'x' }), /its sub is "x", expected "agent"/],
    ['is no token', async () => 'x.y.z', /not a signed JWT/],
    ['is empty', async () => '', /not a signed JWT/],
    ['is of another key with an id', () => signed(ec().privateKey, {}, { kid: 'other' }), /signature does not match/],
    ['expired before all dates', () => signed(pair.privateKey, { expires: -1e300 }), /it expired at 1970/],
    ['is valid in an hour', () => signed(pair.privateKey, { from: '1h' }), /not valid yet: is the clock right/],
    [
      'has a thousand audiences',
      () => signed(pair.privateKey, { audience: Array(1000).fill('plane') }),
      /1000 audiences/,
    ],
    ['is very long', async () => 'x'.repeat(20_000), /20000 characters/],
    ['is not signed', async () => unsigned({ alg: 'none' }), /algorithm|signed JWT/],
    ['was signed with the public key as a secret', async () => hmac(spki(pair.publicKey)), /algorithm|key id/],
  ];
  for (const [what, token, reason] of rows) {
    it(`that ${what} is rejected`, async () => {
      assert.match(await rejection(verifier(await keys), await token()), reason);
    });
  }

  it('of a Kubernetes cluster names a key of a PEM file by its hash', async () => {
    const older = ec();
    const [, id] = await readTokenKeys(spki(older.publicKey) + spki(pair.publicKey)).then((read) =>
      read.map((key) => key.id),
    );
    const verify = verifier(await readTokenKeys(spki(older.publicKey) + spki(pair.publicKey)));
    for (const kid of [id, 'of another kind of issuer']) {
      const { subject } = await verify(await signed(pair.privateKey, {}, { kid }));
      assert.equal(subject, 'agent');
    }
  });

  it('costs a few verifications, however many keys there are', async () => {
    const pairs = Array.from({ length: 10 }, ec);
    const verify = verifier(await readTokenKeys(pairs.map(({ publicKey }) => spki(publicKey)).join('')));
    const outcomes = pairs.map(async ({ privateKey }) => rejection(verify, await signed(privateKey)));
    const no = 'its signature does not match';
    assert.deepEqual(await Promise.all(outcomes), [...Array(8).fill('accepted'), no, no]);
  });

  it('is verified by the key that it names', async () => {
    const other = ec();
    const jwks = {
      keys: [
        { ...(await exportJWK(pair.publicKey)), kid: '1' },
        { ...(await exportJWK(other.publicKey)), kid: '2' },
      ],
    };
    const verify = verifier(await readTokenKeys(JSON.stringify(jwks)));
    assert.equal((await verify(await signed(other.privateKey, {}, { kid: '2' }))).subject, 'agent');
    assert.match(await rejection(verify, await signed(other.privateKey, {}, { kid: '1' })), /signature/);
    assert.equal(
      await rejection(verify, await signed(other.privateKey, {}, { kid: '3' })),
      `none of the issuer's keys has its key id ("3")`,
    );
  });
});

describe("an issuer's keys", () => {
  it('may be several in PEM', async () => {
    assert.equal((await readTokenKeys(spki(ec().publicKey) + spki(ec().publicKey))).length, 2);
  });

  for (const [what, text] of [
    ['nothing', ''],
    ['a private key', ec().privateKey.export({ format: 'pem', type: 'pkcs8' }) as string],
    ['a JWKS of secrets', JSON.stringify({ keys: [{ kty: 'oct', k: 'AAAA' }] })],
    ['another JSON', '{"a": 1}'],
    ['half a JSON', '{"keys": ['],
    ['a JWKS of an RSA key that costs too much', rsa(16_384, 3)],
    ['a JWKS of an RSA key whose exponent costs too much', rsa(2048, 64)],
  ] as const) {
    it(`are not in ${what}`, () => assert.rejects(readTokenKeys(text)));
  }

  it('are named if they are no texts', () =>
    assert.rejects(
      readTokenKeys('{"keys": [{"kty": "RSA", "n": 5, "e": {}}]}'),
      /RSA key in it whose n or e is no text/,
    ));
});

/** @param modulus in bits @param exponent in bytes */
function rsa(modulus: number, exponent: number): string {
  const of = (bytes: number) => Buffer.alloc(bytes, 0xff).toString('base64url');
  return JSON.stringify({ keys: [{ kty: 'RSA', n: of(modulus / 8), e: of(exponent) }] });
}

const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');

function unsigned(header: object): string {
  return `${part(header)}.${part({ iss: RULES.issuer, aud: RULES.audience, sub: RULES.subject, exp: 4_000_000_000 })}.`;
}

function hmac(secret: string): string {
  const text = unsigned({ alg: 'HS256' }).slice(0, -1);
  return `${text}.${createHmac('sha256', secret).update(text).digest('base64url')}`;
}
