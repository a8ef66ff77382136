import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HostPattern, Prefix } from './patterns.ts';

describe('a prefix', () => {
  const rows: [prefix: string, address: string, has: boolean][] = [
    ['10.0.0.0/8', '10.255.0.1', true],
    ['10.0.0.0/8', '11.0.0.1', false],
    ['10.0.0.7', '10.0.0.7', true],
    ['10.0.0.7', '10.0.0.8', false],
    ['0.0.0.0/0', '192.0.2.1', true],
    ['0.0.0.0/0', '2001:db8::1', false],
    ['10.0.0.0/8', '::ffff:10.1.2.3', true],
    ['fe80::/10', 'fe80::1%eth0', true],
    ['2001:db8::/32', '2001:db9::1', false],
  ];
  for (const [prefix, address, has] of rows) {
    it(`${prefix} ${has ? 'has' : 'does not have'} ${address}`, () => {
      assert.equal(new Prefix(prefix).has(address), has);
    });
  }

  it('covers the prefixes that lie in it', () => {
    const ten = new Prefix('10.0.0.0/8');
    const covered = ['10.0.0.0/8', '10.1.0.0/16', '10.1.2.3', '0.0.0.0/0', '11.0.0.0/16', '::/0'];
    assert.deepEqual(
      covered.filter((text) => ten.covers(new Prefix(text))),
      ['10.0.0.0/8', '10.1.0.0/16', '10.1.2.3'],
    );
  });

  for (const [text, message] of [
    ['10.0.0.1/8', /write 10\.0\.0\.0\/8/],
    ['10.0.0.0/33', /0 to 32 bits/],
    ['10.0.0.0/', /0 to 32 bits/],
    ['10.0.0.0/8/8', /no prefix/],
    ['::/129', /0 to 128 bits/],
    ['example.com', /no prefix/],
    ['', /no prefix/],
  ] as const) {
    it(`is not "${text}"`, () => assert.throws(() => new Prefix(text), message));
  }
});

describe('a host pattern', () => {
  const rows: [pattern: string, host: string, has: boolean][] = [
    ['db.example', 'db.example', true],
    ['db.example', 'DB.Example.', true],
    ['db.example', 'x.db.example', false],
    ['*.example', 'db.example', true],
    ['*.example', 'a.b.example', true],
    ['*.example', 'example', false],
    ['*.example', 'notexample', false],
  ];
  for (const [pattern, host, has] of rows) {
    it(`${pattern} ${has ? 'matches' : 'does not match'} ${host}`, () => {
      assert.equal(new HostPattern(pattern).has(host), has);
    });
  }

  it('covers narrower patterns', () => {
    const covers = (outer: string, inner: string) => new HostPattern(outer).covers(new HostPattern(inner));
    assert.deepEqual(
      [covers('*.example', 'db.example'), covers('*.example', '*.db.example'), covers('*.example', '*.example')],
      [true, true, true],
    );
    assert.deepEqual([covers('db.example', '*.db.example'), covers('*.db.example', '*.example')], [false, false]);
  });

  for (const text of ['10.0.0.1', '*', '*.', 'a..b', '-a', 'a b', `${'a'.repeat(64)}.example`, 'x.*.example']) {
    it(`is not "${text}"`, () => assert.throws(() => new HostPattern(text)));
  }

  it('reads a long hostile text in linear time', () => {
    assert.throws(() => new HostPattern(`${'a-'.repeat(100_000)}!`));
  });
});
