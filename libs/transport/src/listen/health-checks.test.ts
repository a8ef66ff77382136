import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import net, { BlockList } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import tls, { type ConnectionOptions } from 'node:tls';
import { CertificateAuthority, LOOPBACK } from '@isthmus/certificates';
import { RUNTIME, within } from '@isthmus/runtime';
import { changed, until } from '@isthmus/runtime/testing';
import { planeEvents } from '@isthmus/tunnel';
import { TRANSPORT } from '../defaults.ts';
import { listen } from '../listen.ts';

const DAY = 86_400_000;

/** Each way comes as often, because what a server sees of it depends on the moment. */
const TIMES = 20;

const authority = await CertificateAuthority.create('peers', DAY);
const own = await authority.issue({ commonName: 'server', validMs: DAY, hosts: LOOPBACK });

interface How {
  readonly tls: boolean;
  readonly asksOnly?: boolean;
  readonly proxyNetworks?: BlockList;
}

async function listening(context: TestContext, how: How) {
  const dir = await mkdtemp(join(tmpdir(), 'health-'));
  context.after(() => rm(dir, { recursive: true }));
  const files = { cert: join(dir, 'tls.crt'), key: join(dir, 'tls.key'), ca: join(dir, 'ca.crt') };
  const texts = { cert: own.cert, key: own.key, ca: authority.cert };
  await Promise.all(Object.entries(files).map(([name, path]) => writeFile(path, texts[name as keyof typeof texts])));
  const events = planeEvents();
  const refused: string[] = [];
  events.on('refused', (_where, _remote, error) => void refused.push(error.message));
  const listener = await listen({
    address: { host: '127.0.0.1', port: 0 },
    ...(how.tls && { tls: files }),
    asksOnly: how.asksOnly ?? false,
    proxyNetworks: how.proxyNetworks,
    others: ({ stream }) => void stream.end(),
    http2: ({ stream }) => void stream.end(),
    events,
    name: 'agents',
  });
  context.after(() => listener.close());
  return {
    port: Number(listener.address.split(':').at(-1)),
    refused,
    waiting: () => listener.unproven.size,
    close: () => listener.close(),
    gone: () => [...listener.connections].length === 0,
  };
}

async function plain(port: number) {
  const socket = net.connect(port, '127.0.0.1').on('error', () => {});
  await once(socket, 'connect');
  return socket;
}

async function shaken(port: number, more: ConnectionOptions = {}) {
  const below = await plain(port);
  const socket = tls.connect({ socket: below, rejectUnauthorized: false, ...more }).on('error', () => {});
  await once(socket, 'secureConnect');
  return { below, socket };
}

const OLDER = { maxVersion: 'TLSv1.2' } as const;

/** How load balancers look whether a port is open. */
const CHECKS: Readonly<Record<string, (port: number) => Promise<unknown>>> = {
  'connect and close': async (port) => (await plain(port)).end(),
  'connect and reset': async (port) => (await plain(port)).resetAndDestroy(),
  'handshake and close': async (port) => (await shaken(port)).socket.end(),
  'handshake and close without a word': async (port) => {
    const { below } = await shaken(port);
    // The end of its handshake is still to be sent.
    await new Promise((sent) => setImmediate(sent));
    below.destroy();
  },
  'handshake and reset': async (port) => (await shaken(port)).below.resetAndDestroy(),
  'handshake of TLS 1.2 and close': async (port) => (await shaken(port, OLDER)).socket.end(),
  'handshake of TLS 1.2 and reset': async (port) => (await shaken(port, OLDER)).below.resetAndDestroy(),
};

const PORTS = [
  { name: 'a plain port', tls: false },
  { name: 'a port that requires certificates', tls: true },
  { name: 'a port that asks for certificates', tls: true, asksOnly: true },
];

for (const { name, ...how } of PORTS) {
  test(`a load balancer's health check is no refusal at ${name}`, async (t) => {
    const { port, refused, gone } = await listening(t, how);
    for (const [check, run] of Object.entries(CHECKS)) {
      if (!how.tls && check.startsWith('handshake')) continue;
      for (let n = 0; n < TIMES; n++) await run(port);
      await until(gone, `no connection after ${check}`);
      // What came before the last connection has been judged.
      const last = await plain(port);
      last.end();
      await once(last.resume(), 'close');
      assert.deepEqual(refused, [], check);
    }
  });
}

test('a peer that asks for something, stays, or leaves when it sees the certificate is refused', async (t) => {
  using _ = changed(TRANSPORT, { refusedPeerMs: 1000 });
  const { port, refused } = await listening(t, { tls: true });
  const NONE = 'this port requires a client certificate, and the peer sent none';
  const asks = await shaken(port);
  asks.socket.write('CONNECT a:1 HTTP/1.1\r\n\r\n');
  const [answer] = (await once(asks.socket, 'data')) as [Buffer];
  assert.match(answer.toString(), /^HTTP\/1\.1 403 /);
  await until(() => refused.length === 1, 'the refusal of a peer that asked');
  const h2 = await shaken(port, { ALPNProtocols: ['h2'] });
  h2.socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
  await until(() => refused.length === 2, 'the refusal of a peer that speaks HTTP/2');
  h2.socket.destroy();
  const closed = Promise.withResolvers<void>();
  const stays = await shaken(port, { ALPNProtocols: ['h2'] });
  stays.socket.resume().on('close', () => closed.resolve());
  await until(() => refused.length === 3, 'the refusal of a peer that stays');
  await closed.promise;
  assert.deepEqual(refused.splice(0), [NONE, NONE, NONE]);
  const leaves = await plain(port);
  const hello = Promise.withResolvers<Buffer>();
  const heard = net.createServer((socket) => void socket.once('data', hello.resolve)).listen(0, '127.0.0.1');
  await once(heard, 'listening');
  const speaks = tls.connect({ port: (heard.address() as net.AddressInfo).port, host: '127.0.0.1' });
  speaks.on('error', () => {});
  leaves.write(await hello.promise);
  await once(leaves, 'data');
  leaves.end();
  await until(() => refused.length === 1, 'the refusal of a peer that saw the certificate');
  assert.match(refused[0] ?? '', /^the peer went away during the TLS handshake: does it trust/);
  speaks.destroy();
  heard.close();
});

test('a port that closes waits for no handshake, whether it has begun or not', async (t) => {
  using _ = changed(RUNTIME, { handshakeSlots: 1 });
  const { port, waiting, close } = await listening(t, { tls: true });
  for (const stranger of [await plain(port), await plain(port)]) stranger.write('\x16');
  await until(() => waiting() === 2, { what: 'both' });
  assert.equal(await within(close(), 5000), true);
});

test('a port that closes waits for no header of the PROXY protocol, and tells nobody of it', async (t) => {
  const proxyNetworks = new BlockList();
  proxyNetworks.addAddress('127.0.0.1');
  const { port, refused, close } = await listening(t, { tls: true, proxyNetworks });
  for (const balancer of [await plain(port), await plain(port)]) balancer.write('PROXY ');
  await setTimeout(100);
  assert.equal(await within(close(), 2000), true);
  assert.deepEqual(refused, []);
});

test('a peer may send its ClientHello before it has a slot, and not much more', async (t) => {
  using _ = changed(RUNTIME, { handshakeSlots: 1 });
  const { port, refused, waiting } = await listening(t, { tls: true, asksOnly: true });
  const first = await plain(port);
  await until(() => waiting() === 1, { what: 'the first' });
  const [large, patient] = [await plain(port), shaken(port)];
  await until(() => waiting() === 3, { what: 'all' });
  large.write(Buffer.alloc(1024 * 1024));
  await until(() => refused.length > 0, { what: 'a refusal' });
  assert.deepEqual(refused, ['it sent more than 16 KiB before it had a slot']);
  first.destroy();
  const { socket } = await patient;
  assert.equal(socket.getPeerCertificate().subject.CN, 'server');
  socket.destroy();
});
