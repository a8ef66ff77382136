import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import net, { BlockList } from 'node:net';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { connect } from 'node:tls';
import { remoteOf, type TlsSettings } from '@isthmus/runtime';
import { binaryHeader } from '@isthmus/runtime/testing';
import { type Listener, listen, type SocketEnd } from '@isthmus/transport';
import { planeEvents } from '@isthmus/tunnel';
import {
  connectThrough,
  echo,
  newTrust,
  Scope,
  startAgent,
  startServer,
  type Trust,
  tunnelThrough,
  until,
  within,
} from '../harness/index.ts';

const LINE = Buffer.from('PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n');
const BINARY = binaryHeader({ source: ['c0000202', 7], fields: Buffer.from('fields of its own') });
const LOCAL = binaryHeader({ command: 0 });

interface Balanced {
  readonly port: number;
  /** Events `refused`, as `where remote: text`. The remote has no port. */
  readonly refusals: string[];
  readonly listener: Listener;
}

/** A port that answers each connection with its remote, and takes the header from `network`. */
async function balanced(scope: Scope, tls?: TlsSettings, network = '127.0.0.0'): Promise<Balanced> {
  const events = planeEvents();
  const refusals: string[] = [];
  events.on('refused', (where, remote, { message }) =>
    refusals.push(`${where} ${remote.replace(/:\d+$/, '')}: ${message}`),
  );
  const proxyNetworks = new BlockList();
  proxyNetworks.addSubnet(network, 8, 'ipv4');
  const answer = ({ stream }: SocketEnd, first: Buffer) => void stream.end(`${remoteOf(stream)} sent ${first}`);
  const address = { host: '127.0.0.1', port: 0 };
  const listener = await listen({
    address,
    ...(tls && { tls }),
    proxyNetworks,
    others: answer,
    events,
    name: 'callers',
  });
  scope.defer(() => listener.close());
  return { port: Number(listener.address.split(':').at(-1)), refusals, listener };
}

async function trusted(scope: Scope): Promise<{ trust: Trust; tls: TlsSettings }> {
  const trust = await newTrust(scope);
  return { trust, tls: { ...(await trust.callers.server()), ca: trust.callers.cert } };
}

/** A load balancer: puts a header ahead of a connection, and cuts what it sends first behind `cut` bytes. */
async function loadBalancer(scope: Scope, port: number, header: Buffer, cut: number): Promise<number> {
  const server = net.createServer((near) => {
    const far = net.connect({ port, host: '127.0.0.1', noDelay: true });
    near.on('error', () => far.destroy());
    far.on('error', () => near.destroy());
    near.once('data', async (first: Buffer) => {
      const bytes = Buffer.concat([header, first]);
      if (cut > 0) {
        far.write(bytes.subarray(0, cut));
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      far.write(bytes.subarray(cut));
      near.pipe(far).pipe(near);
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  scope.defer(() => void server.close());
  return (server.address() as net.AddressInfo).port;
}

async function askOverTls(port: number, { callers, caller }: Trust): Promise<string> {
  const [ca, cert, key] = await Promise.all([callers.cert, caller.cert, caller.key].map((file) => readFile(file)));
  const socket = connect({ port, host: '127.0.0.1', servername: 'localhost', ca, cert, key });
  await within(once(socket, 'secureConnect'), { what: 'a TLS handshake behind a load balancer' });
  socket.write('hello');
  return within(text(socket), { what: 'an answer over TLS' });
}

async function ask(port: number, bytes: Buffer | string): Promise<string> {
  const socket = net.connect(port, '127.0.0.1').on('error', () => {});
  socket.write(bytes);
  return within(
    text(socket).catch(() => ''),
    { what: 'an answer' },
  );
}

for (const [name, header, source] of [
  ['version 1', LINE, '192.0.2.1:56324'],
  ['version 2', BINARY, '192.0.2.2:7'],
] as const) {
  test(`a header of ${name} is read ahead of TLS, wherever it is cut`, { timeout: 240_000 }, async () => {
    await using scope = new Scope();
    const { trust, tls } = await trusted(scope);
    const { port, refusals } = await balanced(scope, tls);
    for (let cut = 0; cut <= header.length + 1; cut++) {
      const answer = await askOverTls(await loadBalancer(scope, port, header, cut), trust);
      assert.equal(answer, `${source} sent hello`, `cut behind ${cut} bytes`);
    }
    assert.deepEqual(refusals, []);
  });
}

test('a load balancer speaks for itself, and a plain port reads the header too', async () => {
  await using scope = new Scope();
  const { port, refusals } = await balanced(scope);
  assert.match(await ask(port, Buffer.concat([LOCAL, Buffer.from('hello')])), /^127\.0\.0\.1:\d+ sent hello$/);
  assert.equal(await ask(port, `${LINE}hello`), '192.0.2.1:56324 sent hello');
  // A health check connects and closes.
  await once(net.connect(port, '127.0.0.1').end(), 'close');
  assert.deepEqual(refusals, []);
});

test('what is no header is refused and counted, and the port goes on', async () => {
  await using scope = new Scope();
  const { trust, tls } = await trusted(scope);
  const { port, refusals } = await balanced(scope, tls);
  const bad: readonly (readonly [bytes: Buffer | string, text: RegExp])[] = [
    ['CONNECT h:1 HTTP/1.1\r\n\r\n', /does not begin with a header of the PROXY protocol/],
    [Buffer.from('16030100', 'hex'), /does not begin with a header/],
    [`PROXY UNKNOWN ${'x'.repeat(200)}`, /no end within 107 bytes/],
    ['PROXY TCP4 192.0.2.1 192.0.2.2 1 99999\r\n', /malformed: no port/],
    [binaryHeader({ fields: Buffer.alloc(60_000) }), /60000 bytes of addresses and fields: at most 4096/],
  ];
  for (const [bytes, expected] of bad) {
    assert.equal(await ask(port, bytes), '');
    assert.match(refusals.splice(0).join('\n'), expected);
  }
  const cut = net.connect(port, '127.0.0.1');
  cut.end(LINE.subarray(0, 20));
  await until(() => refusals.length > 0, { what: 'the refusal of half a header' });
  assert.match(refusals.splice(0).join(), /^callers 127\.0\.0\.1: it ended in the middle of its header/);
  const silent = net.connect(port, '127.0.0.1').on('error', () => {});
  await until(() => refusals.length > 0, { what: 'the deadline of a header' });
  assert.match(refusals.splice(0).join(), /no header of the PROXY protocol within 5 s/);
  silent.destroy();
  assert.match(await askOverTls(await loadBalancer(scope, port, LINE, 0), trust), /^192\.0\.2\.1/);
});

test('a header from elsewhere is bytes of the protocol: it is refused, and names nobody', async () => {
  await using scope = new Scope();
  const { tls } = await trusted(scope);
  const { port, refusals } = await balanced(scope, tls, '10.0.0.0');
  // Deno answers with a TLS alert.
  assert.doesNotMatch(await ask(port, LINE), /sent/);
  await until(() => refusals.length > 0, { what: 'the refusal of a header' });
  assert.match(refusals.join(), /^callers 127\.0\.0\.1: /);
});

test('limits of strangers count true sources', async () => {
  await using scope = new Scope();
  const { tls } = await trusted(scope);
  const { port, listener, refusals } = await balanced(scope, tls);
  const held = [1, 2, 3].map((host) => {
    const socket = net.connect(port, '127.0.0.1').on('error', () => {});
    scope.defer(() => void socket.destroy());
    socket.write(`PROXY TCP4 192.0.2.${host} 198.51.100.1 1 443\r\n`);
    return socket;
  });
  await until(() => listener.unproven.size === held.length, { what: 'three strangers' });
  // Who sends nothing of its own after the header is let go, under its own address.
  const waited = () => refusals.filter((each) => each.startsWith('callers waiting')).sort();
  await until(() => waited().length === held.length, { what: 'three refusals' });
  const expected = [1, 2, 3].map((host) => `callers waiting 192.0.2.${host}: it sent nothing within 5 s`);
  assert.deepEqual(waited(), expected);
});

test('a server behind load balancers sees the true sources of agents and callers', async () => {
  await using scope = new Scope();
  const trust = await newTrust(scope);
  const server = await startServer(scope, trust, { 'proxy-protocol-networks': '127.0.0.0/8' });
  const agents = await loadBalancer(scope, server.agentPort, LINE, 0);
  await startAgent(scope, trust, agents);
  await server.program.waitReady();
  const logged = (text: string) => server.program.logs.some((line) => JSON.stringify(line).includes(text));
  await until(() => logged('192.0.2.1:56324'), { what: () => `the agent's source in the log${server.program.tail}` });
  const target = await echo(scope);
  const port = await loadBalancer(scope, server.mtls.port, BINARY, 0);
  await tunnelThrough(scope, { via: { ...server.mtls, port }, destination: target.authority });
  // Who is refused has its own address in the log, too.
  await connectThrough(scope, { via: { port, ca: trust.callers.cert }, destination: target.authority });
  await until(() => logged('192.0.2.2:7'), { what: () => `the stranger's source in the log${server.program.tail}` });
  await assert.rejects(connectThrough(scope, { via: server.mtls, destination: target.authority }));
});
