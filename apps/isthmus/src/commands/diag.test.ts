import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { CertificateAuthority } from '@isthmus/certificates';
import { costsItsLength } from '@isthmus/runtime/testing';
import { scrubbed, writeArchive } from './diag.ts';

describe('archive', () => {
  let dir: string;

  before(async () => {
    dir = await mkdtemp(join(tmpdir(), 'isthmus-diag-'));
  });
  after(() => rm(dir, { recursive: true, force: true }));

  const TOKEN = `eyJhbGciOiJSUzI1NiJ9.${Buffer.from('{"sub":"agent"}').toString('base64url')}.c2lnbmF0dXJl`;

  describe('the archive of a plane', () => {
    it('holds its texts, readable only by its owner, and none of their secrets', async () => {
      const authority = await CertificateAuthority.create('a', 1000);
      const texts = new Map([
        ['summary.txt', 'all is well\n'],
        [
          'members/hub-1/log.ndjson',
          `{"msg":"refused","authorization":"Bearer ${TOKEN}","url":"redis://plane:hunter2@r:6379/0"}\n`,
        ],
        [
          'members/hub-1/config.json',
          JSON.stringify({ key: await authority.key(), password: 'hunter2', cert: authority.cert }),
        ],
      ]);
      const path = join(dir, 'a.tar.gz');
      const size = await writeArchive(path, texts);
      assert.equal(size, statSync(path).size);
      assert.equal(statSync(path).mode & 0o77, 0);
      const tar = gunzipSync(readFileSync(path)).toString();
      const key = (await authority.key()).split('\n')[1] ?? '';
      for (const secret of ['hunter2', TOKEN, key]) assert.ok(!tar.includes(secret), secret);
      for (const kept of ['summary.txt', 'all is well', 'redis://***@r:6379/0', 'BEGIN CERTIFICATE'])
        assert.ok(tar.includes(kept), kept);
    });

    it('overwrites no file', async () => {
      const path = join(dir, 'b.tar.gz');
      await writeArchive(path, new Map([['a', 'first']]));
      await assert.rejects(writeArchive(path, new Map([['a', 'second']])), {
        status: 2,
        message: /cannot write .*EEXIST/,
      });
      assert.ok(gunzipSync(readFileSync(path)).includes('first'));
    });
  });

  const SCRUBBED: readonly (readonly [text: string, shown: string])[] = [
    ['rediss+sentinel://u:p%40ss@a:1,b:2/primary', 'rediss+sentinel://***@a:1,b:2/primary'],
    ['--redis-url=redis://:word@r:6379', '--redis-url=redis://***@r:6379'],
    ['Authorization: Bearer abcdefgh12345', 'Authorization: *** ***'],
    ['invalid bearer token, Basic authentication', 'invalid bearer token, Basic authentication'],
    ['"token":"abcdef"', '"token":"***"'],
    ['x-eyJhbGciOiJS.eyJzdWIiOiJh.c2ln', 'x-[token left out]'],
    ['password=hunter2&x=1', 'password=***&x=1'],
    ['-----BEGIN EC PRIVATE KEY-----\nMHc', '[private key left out]'],
    ['http://10.0.0.1:80/path http_proxy', 'http://10.0.0.1:80/path http_proxy'],
    ['--service-account-token-path /var/run/token', '--service-account-token-path /var/run/token'],
    ['dial tcp [::1]:80: connect: connection refused', 'dial tcp [::1]:80: connect: connection refused'],
  ];

  describe('what looks like a secret', () => {
    for (const [text, shown] of SCRUBBED) {
      it(`is removed from: ${text.split('\n')[0]}`, () => assert.equal(scrubbed(text), shown));
    }

    for (const beginning of [
      'a',
      '://a:',
      '://:',
      'eyJhbGciOiJS-',
      'xeyJ',
      'eyJhbGciOiJS.',
      'password ',
      'Bearer ',
      '-----BEGIN A',
    ])
      it(`costs what its length costs to look for, in many of ${beginning}`, () => {
        costsItsLength(() => scrubbed(beginning.repeat(3_000_000 / beginning.length)));
      });
  });
});
