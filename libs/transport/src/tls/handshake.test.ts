import assert from 'node:assert/strict';
import { test } from 'node:test';
import { handshakeError } from './admit.ts';

test('a peer that went before it was shown a certificate, or that reset its connection, is not refused', () => {
  const gone = Object.assign(new Error('socket hang up'), { code: 'ECONNRESET' });
  const reset = Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET', syscall: 'read' });
  assert.equal(handshakeError(gone, false), undefined);
  assert.equal(handshakeError(reset, false), undefined);
  assert.equal(handshakeError(reset, true), undefined);
  assert.match(handshakeError(gone, true)?.message ?? '', /during the TLS handshake: does it trust the authority/);
});
