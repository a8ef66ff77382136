import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { uriHost } from './names.ts';

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
