import assert from 'node:assert/strict';
import { describe, it, test } from 'node:test';
import type { DialPolicy } from '@isthmus/tunnel';
import { HostPattern, Prefix } from './patterns.ts';
import { policyOf } from './policy.ts';

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

  for (const text of ['10.0.0.1', '*', '*.', 'a..b', '-a', 'a b', `${'a'.repeat(64)}.example`, 'x.*.example']) {
    it(`is not "${text}"`, () => assert.throws(() => new HostPattern(text)));
  }

  it('reads a long hostile text in linear time', () => {
    assert.throws(() => new HostPattern(`${'a-'.repeat(100_000)}!`));
  });
});

const kubelet = { host: '10.1.2.3', port: 10250 };

/** The rule that refuses a dial, `none` if no rule allows it; undefined if it is allowed. */
function refusal(policy: DialPolicy, ...dial: Parameters<DialPolicy['verdict']>): string | undefined {
  const { allowed, rule } = policy.verdict(...dial);
  return allowed ? undefined : rule || 'none';
}

test('without rules everything is allowed', () => {
  assert.equal(refusal(policyOf(), kubelet, ''), undefined);
});

test('deny wins, and the refusal has the name of the rule', () => {
  const policy = policyOf({
    deny: [{ cidr: '10.1.0.0/16' }, { name: 'no-ssh', ports: [22] }],
    allow: [{ cidr: '10.0.0.0/8' }],
  });
  assert.equal(refusal(policy, kubelet, ''), 'deny[0]');
  assert.equal(refusal(policy, { host: '10.2.0.1', port: 22 }, ''), 'no-ssh');
  assert.equal(refusal(policy, { host: '10.2.0.1', port: 443 }, ''), undefined);
});

test('with allow, what no rule lists is refused', () => {
  const policy = policyOf({ allow: [{ cidr: '10.0.0.0/8', ports: [443] }, { host: '*.acme.example' }] });
  assert.equal(refusal(policy, { host: '10.0.0.1', port: 443 }, ''), undefined);
  assert.equal(refusal(policy, { host: '10.0.0.1', port: 80 }, ''), 'none');
  assert.equal(refusal(policy, { host: 'db.acme.example', port: 5432 }, ''), undefined);
  assert.equal(refusal(policy, { host: '192.0.2.1', port: 443 }, ''), 'none');
});

test('rules for named callers leave others alone', () => {
  const policy = policyOf({ deny: [{ ports: [22], callers: ['kube-apiserver'] }] });
  assert.equal(refusal(policy, { host: 'x', port: 22 }, 'kube-apiserver'), 'deny[0]');
  assert.equal(refusal(policy, { host: 'x', port: 22 }, 'operator'), undefined);
});

test('a name is judged by the addresses that it was resolved to', () => {
  const policy = policyOf({ deny: [{ cidr: '10.0.0.10' }], allow: [{ cidr: '10.0.0.0/8' }] });
  const name = { host: 'db.example', port: 443 };
  assert.equal(refusal(policy, name, '', ['10.0.0.1']), undefined);
  assert.equal(refusal(policy, name, '', ['10.0.0.1', '10.0.0.10']), 'deny[0]');
  assert.equal(refusal(policy, name, '', ['10.0.0.1', '192.0.2.1']), 'none');
});

test('a name that only its addresses can allow is left to who resolves it, and refused where nobody does', () => {
  const policy = policyOf({ allow: [{ name: 'pods', cidr: '10.0.0.0/8', ports: [443], callers: ['kube-apiserver'] }] });
  const name = { host: 'db.example', port: 443 };
  assert.deepEqual(policy.verdict(name, 'kube-apiserver'), { allowed: true, rule: 'pods' });
  assert.equal(refusal(policy, name, 'kube-apiserver', []), 'none');
  assert.equal(refusal(policy, name, 'another'), 'none');
  assert.equal(refusal(policy, { host: 'db.example', port: 80 }, 'kube-apiserver'), 'none');
  assert.equal(refusal(policy, { host: '192.0.2.1', port: 443 }, 'kube-apiserver'), 'none');
});

test('a verdict names the rule that allows a dial', () => {
  const policy = policyOf({ allow: [{ name: 'pods', cidr: '10.0.0.0/8' }, { host: 'db.example' }] });
  assert.deepEqual(policy.verdict(kubelet, ''), { allowed: true, rule: 'pods' });
  assert.deepEqual(policy.verdict({ host: 'db.example', port: 1 }, ''), { allowed: true, rule: 'allow[1]' });
  assert.deepEqual(policy.verdict({ host: 'x', port: 1 }, '', ['10.0.0.1']), { allowed: true, rule: 'pods' });
  assert.deepEqual(policy.verdict({ host: 'x', port: 1 }, '', []), { allowed: false, rule: '' });
  assert.deepEqual(policyOf().verdict(kubelet, ''), { allowed: true, rule: '' });
});

test('ports can be ranges', () => {
  const policy = policyOf({ deny: [{ ports: [22, [30_000, 32_767]] }] });
  for (const port of [22, 30_000, 31_000, 32_767]) assert.equal(refusal(policy, { host: 'x', port }, ''), 'deny[0]');
  for (const port of [21, 23, 29_999, 32_768]) assert.equal(refusal(policy, { host: 'x', port }, ''), undefined);
});

test('no spelling of an address gets past a rule that denies it', () => {
  const policy = policyOf({ deny: [{ cidr: '127.0.0.0/8' }, { cidr: '10.0.0.10' }, { cidr: '::1' }] });
  const loopback = ['127.0.0.1', '127.1', '0x7f.1', '2130706433', '0', '0.0.0.0', '::', '::1', '::ffff:127.0.0.1'];
  const carried = ['::ffff:a00:a', '64:ff9b::a00:a', '2002:a00:a::', '::10.0.0.10', '::ffff:0:10.0.0.10'];
  for (const host of [...loopback, ...carried, '10.10'])
    assert.match(refusal(policy, { host, port: 1 }, '') ?? '', /^deny/, host);
  for (const host of ['10.0.0.11', '64:ff9b::a00:b', '::2', '10.11', 'localhost'])
    assert.equal(refusal(policy, { host, port: 1 }, ''), undefined, host);
});

test('a rule that allows an address allows no other that reaches the same host', () => {
  const policy = policyOf({ allow: [{ cidr: '127.0.0.1' }, { cidr: '10.0.0.10' }] });
  for (const host of ['127.0.0.1', '127.1', '::ffff:127.0.0.1'])
    assert.equal(refusal(policy, { host, port: 1 }, ''), undefined, host);
  for (const host of ['0.0.0.0', '64:ff9b::a00:a']) assert.equal(refusal(policy, { host, port: 1 }, ''), 'none', host);
});

test('a name that is allowed is refused for an address that is denied', () => {
  const policy = policyOf({ deny: [{ cidr: '10.0.0.10' }], allow: [{ host: '*.svc.cluster.local' }] });
  const name = { host: 'db.svc.cluster.local', port: 5432 };
  assert.equal(refusal(policy, name, '', ['192.0.2.1']), undefined);
  assert.equal(refusal(policy, name, '', ['10.0.0.10']), 'deny[0]');
});
