import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Distrusted } from '@isthmus/tunnel';
import { handshakeError } from './admit.ts';

test('a peer that went before it was shown a certificate, or that reset its connection, is not refused', () => {
  const gone = Object.assign(new Error('socket hang up'), { code: 'ECONNRESET' });
  const reset = Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET', syscall: 'read' });
  assert.equal(handshakeError(gone, false), undefined);
  assert.equal(handshakeError(reset, false), undefined);
  assert.equal(handshakeError(reset, true), undefined);
});

test('a peer that went away at the certificate, or said that it does not know its authority, distrusts it', () => {
  const gone = Object.assign(new Error('socket hang up'), { code: 'ECONNRESET' });
  const told = new Error('0:error:0A000418:SSL routines:ssl3_read_bytes:tlsv1 alert unknown ca:SSL alert number 48');
  for (const error of [gone, told]) {
    const why = handshakeError(error, true);
    assert.ok(why instanceof Distrusted, String(why));
    assert.match(why.message, /: does it trust the authority of this certificate\?$/);
  }
  assert.ok(!(handshakeError(new Error('wrong version number'), true) instanceof Distrusted));
});
