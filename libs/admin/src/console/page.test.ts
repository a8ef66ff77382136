import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Member } from '@isthmus/directory';
import { askerOf, faultOfHost, memberOrigins, type Port } from './page.ts';

function member(adminAddress: string, host = 'node-1'): Member {
  return { memberId: adminAddress, roles: ['hub'], adminAddress, version: '1', zone: '', since: 1, host };
}

const MEMBERS = [
  member('127.0.0.1:8195'),
  member('[::1]:8295'),
  member('127.0.0.1:9999', 'node-2'),
  member('10.0.0.7:8095', 'node-2'),
  member('hub.example:8095'),
  member('x;script-src *:1'),
  member("127.0.0.1:1 'unsafe-inline'"),
  member('10.0.0.8:8095/path'),
];
const plain: Port = { tls: false, members: MEMBERS, host: 'node-1' };
const tls: Port = { ...plain, tls: true };

test("without TLS, only this machine's members are asked and answered; with it, all that have an address", () => {
  assert.deepEqual(memberOrigins(plain), ['http://127.0.0.1:8195', 'http://[::1]:8295']);
  assert.deepEqual(memberOrigins(tls), [
    'https://127.0.0.1:8195',
    'https://[::1]:8295',
    'https://10.0.0.7:8095',
    'https://hub.example:8095',
  ]);
});

test('without TLS, a host that a name can stand for is refused', () => {
  for (const host of ['127.0.0.1:8095', '[::1]:8095', 'localhost:8095', 'localhost', '127.0.0.1']) {
    assert.equal(faultOfHost({ host }, plain), undefined, host);
  }
  for (const host of [
    'evil.example:8095',
    '',
    '127.0.0.1.evil.example:8095',
    'localhost.evil.example',
    '[::1',
    'x:y',
  ]) {
    assert.match(faultOfHost({ host }, plain) ?? '', /not its own/, host);
  }
  assert.equal(faultOfHost({ host: 'gateway.example' }, tls), undefined);
});

const HOST = '127.0.0.1:8095';

const ROWS: readonly [what: string, origin: string | undefined, site: string | undefined, asker: string | undefined][] =
  [
    ['a program', undefined, undefined, 'own'],
    ['the page reads', undefined, 'same-origin', 'own'],
    ['an address that was typed', undefined, 'none', 'own'],
    ['the page posts', `http://${HOST}`, 'same-origin', 'own'],
    ["a member's page", 'http://127.0.0.1:8195', 'same-site', 'member'],
    ['another site posts', 'https://evil.example', 'cross-site', undefined],
    ['another site embeds', undefined, 'cross-site', undefined],
    ['another port of this machine embeds', undefined, 'same-site', undefined],
    ['another port of this machine', 'http://127.0.0.1:3000', 'same-site', undefined],
    ['a frame without an origin', 'null', 'cross-site', undefined],
    ['the same address with TLS', `https://${HOST}`, 'cross-site', undefined],
    ["another machine's loopback", 'http://127.0.0.1:9999', 'same-site', undefined],
  ];

for (const [what, origin, site, asker] of ROWS) {
  test(`${what}: ${asker ?? 'refused'}`, () => {
    const headers = { host: HOST, ...(origin && { origin }), ...(site && { 'sec-fetch-site': site }) };
    assert.equal(askerOf(headers, plain), asker);
  });
}
