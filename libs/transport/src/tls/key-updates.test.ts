import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import test from 'node:test';
import tls, { type TLSSocket } from 'node:tls';
import { CertificateAuthority, LOOPBACK } from '@isthmus/certificates';
import { boundVerification, RUNTIME } from '@isthmus/runtime';
import { admit } from './admit.ts';
import { keyUpdater } from './testing/key-updates.ts';

const DAY = 86_400_000;

test('a client that changes its keys again and again loses its connection, and one that does so now and then does not', {
  timeout: 20_000,
  skip: 'Deno' in globalThis || (boundVerification() ? false : 'this Node has no node:ffi'),
}, async (context) => {
  const authority = await CertificateAuthority.create('servers', DAY);
  const own = await authority.issue({ commonName: 'own', validMs: DAY, hosts: LOOPBACK });
  const server = tls.createServer(own);
  context.after(() => server.close());
  const refused: string[] = [];
  const accepted: TLSSocket[] = [];
  admit(server, undefined, {
    accept: (socket) => void accepted.push(socket.resume()),
    refused: (_remote, { message }) => refused.push(message),
    fault: (_remote, error) => assert.fail(error),
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const [often, rarely] = [
    await keyUpdater(port, { ca: authority.cert }),
    await keyUpdater(port, { ca: authority.cert }),
  ];
  context.after(() => rarely.below.destroy());
  rarely.change(RUNTIME.keyUpdates / 2);
  often.change(20_000);
  await new Promise((closed) => often.below.once('close', closed));
  assert.deepEqual(refused, ['it changes its keys too often (KeyUpdate)']);
  const [first, second] = accepted;
  assert.ok(first?.destroyed);
  assert.ok(second && !second.destroyed);
});
