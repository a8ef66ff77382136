import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseIdentifiers } from './identifiers.ts';

const NONE = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };

const GOOD: [query: string, identifiers: object][] = [
  ['', NONE],
  ['&&', NONE],
  ['ipv4=1.2.3.4&ipv4=5.6.7.8', { ...NONE, ipv4: ['1.2.3.4', '5.6.7.8'] }],
  ['ipv6=%3A%3A1&host=node1.mydomain.com', { ...NONE, ipv6: ['::1'], host: ['node1.mydomain.com'] }],
  ['cidr=10.0.0.0/16&cidr=fd00%3A%3A%2F8', { ...NONE, cidr: ['10.0.0.0/16', 'fd00::/8'] }],
  ['host=a+b%20c', { ...NONE, host: ['a b c'] }],
  ['host=1.2.3.4,5.6.7.8', { ...NONE, host: ['1.2.3.4,5.6.7.8'] }],
  ['host', { ...NONE, host: [''] }],
  ['default-route=true', { ...NONE, defaultRoute: true }],
  ['default-route=1', { ...NONE, defaultRoute: true }],
  ['default-route=false&default-route=true', NONE],
  ['default-route=yes', NONE],
  ['mac=00%3A11&ipv4=1.2.3.4', { ...NONE, ipv4: ['1.2.3.4'] }],
];

for (const [query, identifiers] of GOOD) {
  test(`the identifiers of "${query}"`, () => {
    assert.deepEqual(parseIdentifiers(query), { identifiers, mistake: undefined });
  });
}

const BAD: [query: string, error: RegExp][] = [
  ['ipv4=%zz', /fail to parse url encoded string: invalid URL escape "%zz"/],
  ['ipv4=%4', /invalid URL escape "%4"/],
  ['%=1', /invalid URL escape "%"/],
  ['ipv4=1.2.3.4;host=a', /invalid semicolon separator in query/],
  ['host=%ff', /no UTF-8/],
];

for (const [query, error] of BAD) {
  test(`"${query}" is no list of identifiers`, () => {
    assert.throws(() => parseIdentifiers(query), error);
  });
}

test('a network that is none is left out, and named', () => {
  const said = ['10.0.0.0/8,192.168.0.0/16', '10.0.0.0/33', '10.0.0.1', '10/8', '010.0.0.0/8', 'fe80::1%25eth0/64', ''];
  const read = (...networks: readonly string[]) => {
    const all = ['172.16.0.0/12', ...networks, 'fd00::/8'];
    const { identifiers, mistake } = parseIdentifiers(all.map((cidr) => `cidr=${cidr}`).join('&'));
    assert.deepEqual(identifiers.cidr, ['172.16.0.0/12', 'fd00::/8']);
    return mistake?.message;
  };
  const why = 'is no network and is ignored: give each network a cidr= of its own';
  for (const each of said) assert.equal(read(each), `the identifier cidr=${decodeURIComponent(each)} ${why}`);
  assert.equal(read(...said), `the identifier cidr=${said[0]} (and 6 more) ${why}`);
});
