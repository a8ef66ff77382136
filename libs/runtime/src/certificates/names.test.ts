import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { costsItsLength } from '../testing.ts';
import { constraintFault, uriHost } from './names.ts';

describe('the host of a URI', () => {
  for (const [uri, host] of [
    ['spiffe://acme/ns/a', 'acme'],
    ['https://user@example.com:8443/x', 'example.com:8443'],
    ['https://[::1]:443', '[::1]:443'],
    ['urn:a:b', ''],
    ['spiffe://a%25b/', 'a%25b'],
  ] as const)
    test(`of ${uri} is ${host || 'none'}`, () => assert.equal(uriHost(uri), host));

  for (const uri of [
    'spiffe://ex%61mple.com/',
    'https://a:b/',
    'https://[::1/',
    'https://a]b/',
    `x://${':'.repeat(15_000)}]`,
  ])
    test(`${uri.slice(0, 30)} is malformed`, () => assert.throws(() => uriHost(uri), /malformed URI/));
});

describe('a long name below many constraints', () => {
  const none = { dns: [], emails: [], ips: [], uris: [] };
  const others = Array.from({ length: 100_000 }, (_, at) => `c${at}.test`);
  for (const [kind, name, constraints] of [
    ['dns', `${'A'.repeat(8_000_000)}.test`, others],
    ['uris', `x://${'a'.repeat(500_000)}.test/`, others],
    ['emails', `a@${'b'.repeat(500_000)}.test`, others.map((each) => `a@${each}`)],
  ] as const)
    test(`of its ${kind} costs what the lengths of both cost`, () => {
      const permitted = { ...none, [kind]: constraints };
      const chain = [
        { names: { ...none, [kind]: [name] }, constraints: undefined, subjectText: 'CN=leaf' },
        { names: undefined, constraints: { permitted, excluded: none }, subjectText: 'CN=ca' },
      ];
      const fault = costsItsLength(() => constraintFault(chain));
      assert.match(fault?.slice(-40) ?? '', /is not among those that CN=ca may issue$/);
    });
});
