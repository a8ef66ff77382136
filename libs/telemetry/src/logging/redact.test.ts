import assert from 'node:assert/strict';
import { test } from 'node:test';
import { recorder } from '../testing/logs.ts';
import { redactUrl } from './redact.ts';

for (const format of ['text', 'json'] as const) {
  test(`secrets never appear in ${format}`, () => {
    const { logger, lines } = recorder({ format });
    const token = 'eyJhbGciOi.eyJpc3MiOi.c2lnbmF0dXJl';
    const pem = '-----BEGIN EC PRIVATE KEY-----\nSECRET\n-----END EC PRIVATE KEY-----\n';
    logger.info({ token: 'SECRET', headers: { Authorization: 'SECRET "and" more' }, clientSecret: 'SECRET' }, 'fields');
    logger.info({ url: 'redis://user:SECRET@r:6379/0', list: ['rediss://:SECRET@r'] }, 'at redis://:SECRET@r, twice');
    logger.child({ password: 'SECRET' }).warn({ pem }, `got Bearer SECRET and ${token},\nBearer SECRET\n${token}`);
    logger.error({ err: new Error('connect redis://u:SECRET@r failed') }, 'error');
    for (const name of ['key', 'API-Key', 'private_key', 'authToken', 'cookie'])
      logger.info({ [name]: 'SECRET' }, 'one');
    for (const said of ['basic SECRET', '/?x-password=SECRET&y=1', pem]) logger.info({}, said);
    const all = lines.join('');
    assert.doesNotMatch(all, /SECRET|eyJ/);
    assert.match(all, /redis:\/\/user:\[redacted\]@r:6379\/0/);
    if (format === 'json') for (const line of lines) JSON.parse(line);
  });
}

test('a URL loses only its password', () => {
  const cases = [
    ['redis://user:p%40ss@host:6379/1', 'redis://user:[redacted]@host:6379/1'],
    ['redis://:a@b@host', 'redis://:[redacted]@host'],
    ['redis://host:6379', 'redis://host:6379'],
    [
      'redis+sentinel://u:p@a,b/main?sentinel-username=s&sentinel-password=w',
      'redis+sentinel://u:[redacted]@a,b/main?sentinel-username=s&sentinel-password=[redacted]',
    ],
    ['redis://user@host', 'redis://user@host'],
    ['redis://:a@x,redis://:b@y', 'redis://:[redacted]@y'],
    ['no url', 'no url'],
  ] as const;
  for (const [url, clean] of cases) assert.equal(redactUrl(url), clean);
});

test('paths that name a token or a key are not secrets', () => {
  const { logger, records } = recorder();
  logger.info({ tokenPath: '/var/run/token', keyFile: '/k.pem' }, 'files');
  assert.equal(records()[0].tokenPath, '/var/run/token');
  assert.equal(records()[0].keyFile, '/k.pem');
});

test('a sentence about bearer tokens keeps its words', () => {
  const { logger, records } = recorder();
  const sentences = [
    'token was not accepted: lookup failed: [invalid bearer token, Token has expired]',
    'invalid bearer token',
    'Bearer tokens are not accepted here.',
    'bearer authentication is off; basic auth too',
    'want a bearer token: none came',
    'the bearer token "expired"',
    'Basic authentication',
  ];
  for (const sentence of sentences) logger.warn({ text: sentence }, sentence);
  const said = records().map(({ text, msg }) => [text, msg]);
  assert.deepEqual(
    said,
    sentences.map((sentence) => [sentence, sentence]),
  );
});

test('a credential after its scheme is a secret, whatever it looks like', () => {
  const { logger, records } = recorder();
  const cases = [
    ['Authorization: Bearer hunter', 'Authorization: Bearer [redacted]'],
    ['bearer tokenofmine', 'bearer [redacted]'],
    ['Bearer token-1', 'Bearer [redacted]'],
    ['Bearer token.of.mine', 'Bearer [redacted]'],
    ['Bearer is/it+this==', 'Bearer [redacted]'],
    ['Basic dXNlcjpwYXNz, then more', 'Basic [redacted], then more'],
    ['sent "Bearer abc" twice', 'sent "Bearer [redacted]" twice'],
    ['BEARER abc', 'BEARER [redacted]'],
    ['Bearer  abc\nBearer def', 'Bearer [redacted]\nBearer [redacted]'],
  ] as const;
  for (const [text] of cases) logger.warn({}, text);
  assert.deepEqual(
    records().map(({ msg }) => msg),
    cases.map(([, clean]) => clean),
  );
});
