import assert from 'node:assert/strict';
import { once } from 'node:events';
import { copyFile, mkdtemp, readFile, rm } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { connect, type TLSSocket } from 'node:tls';
import { Authority } from '@isthmus/service/testing';
import { secureContext, type TlsSettings, tlsServer } from '@isthmus/transport';
import { planeEvents } from '@isthmus/tunnel';

test('a context is made once, and again when its files have changed', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'isthmus-tls-'));
  t.after(() => rm(dir, { recursive: true }));
  const authority = await Authority.create(dir, 'agents');
  const [first, second] = [await authority.server(), await authority.server()];
  const settings = { ca: authority.cert, cert: join(dir, 'tls.crt'), key: join(dir, 'tls.key') };
  const install = async ({ cert, key }: { cert: string; key: string }) => {
    await copyFile(cert, settings.cert);
    await copyFile(key, settings.key);
  };
  await install(first);
  const context = secureContext(settings);
  assert.equal(secureContext(settings), context);
  await install(second);
  const renewed = secureContext(settings);
  assert.notEqual(renewed, context);
  assert.equal(secureContext(settings), renewed);
  await rm(settings.key);
  assert.throws(() => secureContext(settings), { code: 'ENOENT' });
});

/** Each with TLS 1.2 and no other, since TLS 1.3 has no weak suite. */
const SUITES: readonly [suite: string, more: Partial<TlsSettings>, taken: boolean][] = [
  ['ECDHE-ECDSA-AES128-GCM-SHA256', {}, true],
  ['ECDHE-ECDSA-CHACHA20-POLY1305', {}, true],
  ['ECDHE-ECDSA-AES128-SHA', {}, false],
  ['ECDHE-ECDSA-AES256-SHA', {}, false],
  ['ECDHE-ECDSA-AES256-SHA384', {}, false],
  ['ECDHE-ECDSA-AES128-SHA', { ciphers: 'ECDHE-ECDSA-AES128-SHA' }, true],
  ['ECDHE-ECDSA-AES128-SHA', { minVersion: 'TLSv1.1' }, true],
];

test('CBC suites are taken where an operator names them, and nowhere else', {
  skip: 'Deno' in globalThis && 'rustls has none',
}, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'isthmus-tls-'));
  t.after(() => rm(dir, { recursive: true }));
  const authority = await Authority.create(dir, 'callers');
  const files = await authority.server();
  for (const [ciphers, more, taken] of SUITES) {
    const server = tlsServer(
      { where: 'callers', files: { ...files, ...more }, events: planeEvents() },
      {},
      { accept() {}, refused() {} },
    );
    t.after(() => server.close());
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;
    const socket: TLSSocket = connect({
      ...{ port, host: '127.0.0.1', servername: 'localhost', ca: await readFile(authority.cert) },
      ...{ ciphers, maxVersion: 'TLSv1.2' },
    });
    t.after(() => socket.destroy());
    socket.on('error', () => {});
    const outcome = await Promise.race([
      once(socket, 'secureConnect').then(() => true),
      once(socket, 'close').then(() => false),
    ]).catch(() => false);
    assert.equal(outcome, taken, `${ciphers} with ${JSON.stringify(more)}`);
  }
});
