import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { test } from 'node:test';
import type { Server } from 'node:tls';
import { CertificatePool } from '@isthmus/runtime';
import { admit } from '../tls/admit.ts';

test('what is thrown while a certificate is judged, or its peer is taken, ends the connection and nothing else', () => {
  const server = new EventEmitter();
  const faults: string[] = [];
  const accept = () => {
    throw new Error('nobody expected this');
  };
  const fault = (remote: string, { message }: Error) => void faults.push(`${remote}: ${message}`);
  admit(server as Server, () => new CertificatePool([]), { accept, fault, refused: () => {} });
  const ended: boolean[] = [];
  const comes = (certificate: () => object | undefined) => {
    const socket = { remoteAddress: '10.0.0.1', remotePort: 5, getPeerX509Certificate: certificate };
    server.emit('secureConnection', { ...socket, destroy: () => ended.push(true) });
  };
  comes(() => {
    throw new Error('a certificate that cannot be read');
  });
  admit(server.removeAllListeners() as Server, undefined, { accept, fault, refused: () => {} });
  comes(() => undefined);
  assert.deepEqual(faults, ['10.0.0.1:5: a certificate that cannot be read', '10.0.0.1:5: nobody expected this']);
  assert.equal(ended.length, 2);
});
