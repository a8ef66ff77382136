import assert from 'node:assert/strict';
import { test } from 'node:test';
import { faultOfHost, isOwn } from './page.ts';

const plain = { tls: false };
const tls = { tls: true };

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

const ROWS: readonly [what: string, origin: string | undefined, site: string | undefined, own: boolean][] = [
  ['a program', undefined, undefined, true],
  ['the page reads', undefined, 'same-origin', true],
  ['an address that was typed', undefined, 'none', true],
  ['the page posts', `http://${HOST}`, 'same-origin', true],
  ["a member's page", 'http://127.0.0.1:8195', 'same-site', false],
  ['another site posts', 'https://evil.example', 'cross-site', false],
  ['another site embeds', undefined, 'cross-site', false],
  ['another port of this machine embeds', undefined, 'same-site', false],
  ['another port of this machine', 'http://127.0.0.1:3000', 'same-site', false],
  ['a frame without an origin', 'null', 'cross-site', false],
  ['the same address with TLS', `https://${HOST}`, 'cross-site', false],
  ["another machine's loopback", 'http://127.0.0.1:9999', 'same-site', false],
];

for (const [what, origin, site, own] of ROWS) {
  test(`${what}: ${own ? 'may ask' : 'is refused'}`, () => {
    const headers = { host: HOST, ...(origin && { origin }), ...(site && { 'sec-fetch-site': site }) };
    assert.equal(isOwn(headers, plain), own);
  });
}
