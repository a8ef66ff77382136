import assert from 'node:assert/strict';
import { describe, it, test } from 'node:test';
import { createSecureContext } from 'node:tls';
import { parseDestinations } from './destinations.ts';
import { parseLabels } from './server.ts';
import { CIPHER_SUITES, opensslCiphers, tlsVersion } from './tls.ts';

test("each of Go's cipher suites has a name that node:tls accepts", () => {
  assert.equal(CIPHER_SUITES.length, 13);
  for (const name of CIPHER_SUITES) {
    const ciphers = opensslCiphers([name]);
    if (name.includes('_WITH_')) createSecureContext({ ciphers: ciphers as string });
    else assert.equal(ciphers, undefined, name);
  }
});

test('choosing TLS 1.2 suites leaves those of TLS 1.3 unchanged', () => {
  assert.equal(
    opensslCiphers(['TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256']),
    'TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:ECDHE-RSA-AES128-GCM-SHA256',
  );
  assert.equal(opensslCiphers([]), undefined);
});

test("Go's names of TLS versions map to those of node:tls", () => {
  assert.deepEqual(['', 'VersionTLS10', 'VersionTLS11', 'VersionTLS12', 'VersionTLS13', 'TLSv1.2'].map(tlsVersion), [
    'TLSv1.2',
    'TLSv1',
    'TLSv1.1',
    'TLSv1.2',
    'TLSv1.3',
    undefined,
  ]);
});

describe('labels', () => {
  it('are read as in upstream', () => {
    assert.deepEqual(parseLabels(' k8s-app = konnectivity-server,a='), { 'k8s-app': 'konnectivity-server', a: '' });
  });

  for (const bad of ['', 'a', 'a=b,', 'a=b=c', '=b']) {
    it(`reject ${JSON.stringify(bad)}`, () => assert.throws(() => parseLabels(bad), /bad label .*: want key=value/));
  }
});

const parse = (allow: readonly string[], deny: readonly string[] = []) =>
  parseDestinations({ 'allow-destinations': allow, 'deny-destinations': deny });

test('names alone lift what is prohibited, and limit nothing', () => {
  assert.deepEqual(parse([]), { lifted: [], rules: undefined });
  assert.deepEqual(parse(['metadata', 'own-ports']), { lifted: ['own-ports', 'metadata'], rules: undefined });
});

test('entries are rules, beside names', () => {
  assert.deepEqual(parse(['link-local', '10.0.0.0/8'], ['10.0.0.10']), {
    lifted: ['link-local'],
    rules: { allow: [{ name: '10.0.0.0/8', cidr: '10.0.0.0/8' }], deny: [{ name: '10.0.0.10', cidr: '10.0.0.10' }] },
  });
});

for (const [entry, rule] of [
  ['10.0.0.10', { cidr: '10.0.0.10' }],
  ['10.0.0.0/8:443', { cidr: '10.0.0.0/8', ports: [[443, 443]] }],
  ['10.0.0.1:30000-32767', { cidr: '10.0.0.1', ports: [[30_000, 32_767]] }],
  ['fd00::/8', { cidr: 'fd00::/8' }],
  ['fd00::1:443', { cidr: 'fd00::1:443' }],
  ['[fd00::1]', { cidr: 'fd00::1' }],
  ['[fd00::1]:443', { cidr: 'fd00::1', ports: [[443, 443]] }],
  ['[fd00::/8]:1-65535', { cidr: 'fd00::/8', ports: [[1, 65_535]] }],
  ['*.svc.cluster.local', { host: '*.svc.cluster.local' }],
  ['*.svc.cluster.local:443', { host: '*.svc.cluster.local', ports: [[443, 443]] }],
  ['db.example', { host: 'db.example' }],
  ['localhost.', { host: 'localhost.' }],
  ['localhost:80', { host: 'localhost', ports: [[80, 80]] }],
  ['*', {}],
  ['*:22', { ports: [[22, 22]] }],
] as const) {
  test(`${entry} is an entry of either list`, () => {
    assert.deepEqual(parse([entry], [entry]).rules, {
      allow: [{ name: entry, ...rule }],
      deny: [{ name: entry, ...rule }],
    });
  });
}

for (const [entry, problem] of [
  ['10.0.0.1/8', /^bad entry "10.0.0.1\/8": .*write 10.0.0.0\/8$/],
  ['10.0.0.0/33', /a prefix of this kind has 0 to 32 bits$/],
  ['10.0.0/8', /"10.0.0\/8" is no prefix such as/],
  ['10.0', /"10.0" is no prefix such as/],
  ['fd00::/129', /0 to 128 bits$/],
  ['[fd00::1', /is no prefix such as/],
  ['[fd00::1]443', /is no prefix such as/],
  ['10.0.0.1:', /"" is no port from 1 to 65535/],
  ['10.0.0.1:0', /"0" is no port/],
  ['10.0.0.1:65536', /"65536" is no port/],
  ['10.0.0.1:5-4', /"5-4" is no port/],
  ['10.0.0.1:https', /"https" is no port/],
  ['a.*.example', /neither a DNS name nor/],
  ['*example', /neither a DNS name nor/],
  ['', /neither a DNS name nor/],
  ['0x7f.1', /is an address/],
] as const) {
  test(`${JSON.stringify(entry)} is no entry`, () => {
    for (const [flag, allow, deny] of [
      ['--allow-destinations', [entry], []],
      ['--deny-destinations', [], [entry]],
    ] as const) {
      assert.throws(
        () => parse(allow, deny),
        (error: Error) => {
          assert.equal(error.name, 'FlagError');
          assert.ok(error.message.startsWith(`${flag}: `), error.message);
          assert.match(error.message.slice(flag.length + 2), problem);
          return true;
        },
      );
    }
  });
}

test('a misspelt name is not taken for a host', () => {
  assert.throws(
    () => parse(['metdata']),
    /^FlagError: --allow-destinations: unknown name "metdata": want own-ports, link-local, metadata, or write/,
  );
});

test('what is prohibited needs no denial', () => {
  assert.throws(() => parse([], ['metadata']), /--deny-destinations: metadata are denied already/);
});
