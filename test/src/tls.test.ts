import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdtemp, readFile, rm } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { connect, createServer, type TLSSocket } from 'node:tls';
import { Authority } from '@isthmus/certificates/testing';
import { clientTlsOf, type TlsSettings } from '@isthmus/runtime';
import { connectPackets, connectSecurely, tlsServer } from '@isthmus/transport';
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
  const context = clientTlsOf(settings);
  assert.equal(clientTlsOf(settings), context);
  await install(second);
  const renewed = clientTlsOf(settings);
  assert.notEqual(renewed, context);
  assert.equal(clientTlsOf(settings), renewed);
  await rm(settings.key);
  assert.equal(clientTlsOf(settings), renewed, 'what was in force stays');
  assert.throws(() => clientTlsOf({ ...settings }), { code: 'ENOENT' });
});

/** Each suite is offered with TLS 1.2 alone, since TLS 1.3 has no weak suite. */
const SUITES: readonly [suite: string, more: Partial<TlsSettings>, taken: boolean][] = [
  ['ECDHE-ECDSA-AES128-GCM-SHA256', {}, true],
  ['ECDHE-ECDSA-CHACHA20-POLY1305', {}, true],
  ['ECDHE-ECDSA-AES128-SHA', {}, false],
  ['ECDHE-ECDSA-AES256-SHA', {}, false],
  ['ECDHE-ECDSA-AES256-SHA384', {}, false],
  ['ECDHE-ECDSA-AES128-SHA', { ciphers: 'ECDHE-ECDSA-AES128-SHA' }, true],
  ['ECDHE-ECDSA-AES128-SHA', { minVersion: 'TLSv1.1' }, true],
];

test('CBC suites are accepted only if an operator asks for them', {
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
      port,
      host: '127.0.0.1',
      servername: 'localhost',
      ca: await readFile(authority.cert),
      ciphers,
      maxVersion: 'TLSv1.2',
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

/** Returns why a gRPC server rejected an agent of ours. */
async function refusalOf(port: number, tls: TlsSettings): Promise<string> {
  const { signal } = new AbortController();
  const [host, target] = ['127.0.0.1', `127.0.0.1:${port}`];
  const asked = { target, agentId: 'a', identifiers: '', keepaliveMs: 3_600_000, timeout: 60_000, signal };
  const options = { tls, names: [host], ALPNProtocols: ['h2'], timeout: 60_000 };
  const { message } = await connectSecurely({ host, port }, options)
    .then((socket) => connectPackets(socket, asked))
    .then(
      () => assert.fail('it was let in'),
      (error: Error) => error,
    );
  assert.doesNotMatch(message, /SSL routines|alert number|Resolution note/);
  return message;
}

test("an agent that speaks gRPC explains a server's TLS alert", {
  skip: 'Deno' in globalThis && 'rustls writes other alerts',
}, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'isthmus-tls-'));
  t.after(() => rm(dir, { recursive: true }));
  const authority = await Authority.create(dir, 'servers');
  const { cert, key } = await authority.server();
  const shown = { cert: await readFile(cert), key: await readFile(key) };
  for (const [options, minVersion, expected] of [
    [{ maxVersion: 'TLSv1.2' }, 'TLSv1.3', /alert protocol_version\): it wants another version of TLS/],
    [{ ALPNProtocols: ['http/1.1'] }, 'TLSv1.2', /alert no_application_protocol\): .* is it the right port\?/],
  ] as const) {
    const server = createServer({ ...shown, ...options }).on('tlsClientError', () => {});
    t.after(() => server.close());
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;
    assert.match(await refusalOf(port, { ca: authority.cert, minVersion }), expected);
  }
});

test('an agent that speaks gRPC explains why a server rejected its certificate', {
  skip:
    ('Deno' in globalThis && 'rustls writes other alerts') ||
    (spawnSync('openssl', ['version']).status !== 0 && 'openssl is not installed'),
}, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'isthmus-tls-'));
  t.after(() => rm(dir, { recursive: true }));
  const authority = await Authority.create(dir, 'servers');
  const strangers = await Authority.create(dir, 'strangers');
  const { cert, key } = await authority.server();
  // Unlike node:tls, openssl sends the alert.
  const files = ['-cert', cert, '-key', key, '-CAfile', authority.cert, '-Verify', '2', '-verify_return_error'];
  const server = spawn('openssl', ['s_server', '-accept', '127.0.0.1:0', ...files, '-alpn', 'h2'], {
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  t.after(() => server.kill());
  let said = '';
  for await (const chunk of server.stdout) {
    said += chunk;
    if (/ACCEPT .*:\d+\n/.test(said)) break;
  }
  const port = Number(/ACCEPT .*:(\d+)\n/.exec(said)?.[1]);
  const ca = authority.cert;
  assert.match(await refusalOf(port, { ca }), /alert certificate_required\): it asks for a certificate/);
  const stranger = await strangers.client('a');
  assert.match(await refusalOf(port, { ca, ...stranger }), /alert unknown_ca\): it does not trust the authority/);
});
