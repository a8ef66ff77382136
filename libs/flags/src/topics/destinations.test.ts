import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseDestinations } from './destinations.ts';

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
