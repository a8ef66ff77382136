import assert from 'node:assert/strict';
import { test } from 'node:test';
import { handshakeError } from './handshake.ts';

test('a peer that went before it was shown a certificate is not asked whether it trusts it', () => {
  const gone = Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });
  assert.match(handshakeError(gone, false).message, /^the peer went away before its TLS handshake: /);
  assert.match(handshakeError(gone, true).message, /during the TLS handshake: does it trust the authority/);
});
