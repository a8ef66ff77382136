import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import test from 'node:test';
import tls from 'node:tls';
import { CertificateAuthority, LOOPBACK } from '@isthmus/certificates';
import { boundVerification } from '@isthmus/runtime';

const DAY = 86_400_000;

test('no client is sent a ticket: each would cost a write, and nobody resumes', {
  skip: 'Deno' in globalThis || (boundVerification() ? false : 'this Node has no node:ffi'),
}, async (context) => {
  const authority = await CertificateAuthority.create('servers', DAY);
  const own = await authority.issue({ commonName: 'own', validMs: DAY, hosts: LOOPBACK });
  const server = tls.createServer(own, (socket) => socket.end('all'));
  context.after(() => server.close());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const client = tls.connect({ host: '127.0.0.1', port, ca: authority.cert });
  let tickets = 0;
  client.on('session', () => tickets++);
  await once(client, 'secureConnect');
  assert.equal(client.getProtocol(), 'TLSv1.3');
  assert.equal(await text(client), 'all');
  assert.equal(tickets, 0);
});
