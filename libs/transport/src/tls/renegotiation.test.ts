import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import tls from 'node:tls';
import { CertificateAuthority, LOOPBACK } from '@isthmus/certificates';
import { planeEvents } from '@isthmus/tunnel';
import { tlsChoice, tlsServer } from './renewal.ts';

const DAY = 86_400_000;

test('no client of TLS 1.2 has another handshake on its connection: each would cost as much as the first', {
  skip: 'Deno' in globalThis && 'its clients cannot ask for one',
}, async (context) => {
  const authority = await CertificateAuthority.create('servers', DAY);
  const own = await authority.issue({ commonName: 'own', validMs: DAY, hosts: LOOPBACK });
  const dir = await mkdtemp(join(tmpdir(), 'renegotiation-'));
  context.after(() => rm(dir, { recursive: true }));
  const files = { cert: join(dir, 'cert.pem'), key: join(dir, 'key.pem') };
  for (const part of ['cert', 'key'] as const) await writeFile(files[part], own[part]);
  const choice = tlsChoice(own, {});
  const rules = { chooseTls: (name: string) => (name === 'chosen' ? choice : undefined) };
  const server = tlsServer({ where: 'callers', files, events: planeEvents() }, rules, {
    accept: (socket) => void socket.on('error', () => {}).resume(),
    refused() {},
  });
  context.after(() => server.close());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  for (const servername of ['localhost', 'chosen']) {
    const client = tls.connect({
      port,
      host: '127.0.0.1',
      servername,
      rejectUnauthorized: false,
      maxVersion: 'TLSv1.2',
    });
    context.after(() => client.destroy());
    await once(client, 'secureConnect');
    const again = new Promise((resolve) => {
      client.on('error', ({ message }) => resolve(message));
      client.renegotiate({}, (error) => resolve(error?.message ?? 'it was done'));
    });
    assert.match(String(await again), /no renegotiation/);
  }
});
