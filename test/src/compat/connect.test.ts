import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect as connectHttp2, createSecureServer } from 'node:http2';
import type { Socket } from 'node:net';
import { buffer, text } from 'node:stream/consumers';
import { connect as connectTls } from 'node:tls';
import {
  connectThrough,
  echo,
  greeter,
  nextChunk,
  open,
  sink,
  tunnelThrough,
  type Via,
  web,
  within,
} from '../harness/index.ts';
import { acrossShared, EVERY_PAIR, OUR_SERVER } from './rig.ts';

const across = acrossShared();

/** Returns the next chunk as text. */
const next = async (socket: Socket) => String(await nextChunk(socket, 'a byte'));

across(EVERY_PAIR, 'the destination is the request-target, not Host', async (scope, rig) => {
  const { server } = await rig();
  const destination = await web(scope, 'by target');
  for (const via of [server.connect, server.mtls]) {
    const tunnel = await tunnelThrough(scope, { via, destination: destination.authority });
    tunnel.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    assert.match(await next(tunnel), /by target$/);
  }
});

across(OUR_SERVER, 'nothing but the head of a 200 arrives until the destination sends', async (scope, rig) => {
  const { server } = await rig();
  const silent = await echo(scope);
  const eager = await greeter(scope, 'hello');
  for (const via of [server.connect, server.mtls]) {
    const { socket, head } = await connectThrough(scope, { via, destination: silent.authority });
    assert.equal(head.length, 0);
    socket.write('first');
    assert.equal(await next(socket), 'first');
    const early = await connectThrough(scope, { via, destination: eager.authority });
    early.socket.unshift(early.head);
    early.socket.write(' there');
    let said = '';
    while (said.length < 11) said += await next(early.socket);
    assert.equal(said, 'hello there');
  }
});

across(EVERY_PAIR, 'a method other than CONNECT is answered with 405', async (scope, rig) => {
  const { server } = await rig();
  const socket = await open(scope, server.connect);
  socket.end('GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
  assert.match(String(await within(buffer(socket), { what: 'an answer' })), /^HTTP\/1\.1 405 /);
});

const OURS = OUR_SERVER.filter(({ agent }) => agent === 'our');

across(OURS, 'a half-close works in both directions', async (scope, rig) => {
  const { server } = await rig();
  const destination = await sink(scope);
  for (const via of [server.connect, server.mtls]) {
    const tunnel = await tunnelThrough(scope, { via, destination: destination.authority });
    tunnel.end('abc');
    assert.equal(await text(tunnel), '3 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
  }
});

across(EVERY_PAIR, 'five requests on one kept connection, as webhooks send them', async (scope, rig) => {
  const { server } = await rig();
  const destination = await web(scope, 'allowed');
  const tunnel = await tunnelThrough(scope, { via: server.mtls, destination: destination.authority });
  for (const _ of Array(5)) {
    tunnel.write('POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Length: 0\r\n\r\n');
    assert.match(await next(tunnel), /allowed$/);
  }
  assert.equal(destination.accepted, 1);
});

across(EVERY_PAIR, 'HTTP/2 in TLS works inside a tunnel, as the aggregator uses it', async (scope, rig) => {
  const { server, trust } = await rig();
  const { cert, key } = await trust.agents.server();
  const inner = createSecureServer({ cert: readFileSync(cert), key: readFileSync(key) }, (_request, response) => {
    response.end('aggregated');
  }).listen(0, '127.0.0.1');
  await once(inner, 'listening');
  scope.defer(() => inner.close());
  const { port } = inner.address() as { port: number };
  const tunnel = await tunnelThrough(scope, { via: server.connect, destination: `127.0.0.1:${port}` });
  const tls = connectTls({
    socket: tunnel,
    ALPNProtocols: ['h2'],
    servername: 'localhost',
    ca: readFileSync(trust.agents.cert),
  });
  const session = connectHttp2('https://localhost', { createConnection: () => tls });
  scope.defer(() => session.destroy());
  const get = () => text(session.request({ ':path': '/' }));
  const answers = await within(Promise.all(Array.from({ length: 10 }, get)), { what: 'ten answers' });
  assert.deepEqual(answers, Array(10).fill('aggregated'));
});

across(OUR_SERVER, 'IPv6 addresses and names work as destinations', async (scope, rig) => {
  const { server } = await rig();
  const six = await echo(scope, { host: '::1' });
  const four = await echo(scope);
  const vias: readonly Via[] = [server.connect, server.mtls];
  for (const via of vias) {
    for (const destination of [six.authority, `localhost:${four.port}`]) {
      const { status, body } = await connectThrough(scope, { via, destination });
      assert.equal(status, 200, body);
    }
  }
});

across(OUR_SERVER, 'a caller over TCP needs a valid certificate from the right authority', async (scope, rig) => {
  const { server, trust } = await rig();
  const destination = await echo(scope);
  const dial = (identity?: { cert: string; key: string }) => {
    const { port, ca } = server.mtls;
    const via = identity ? { port, ca, identity } : { port, ca };
    return connectThrough(scope, { via, destination: destination.authority });
  };
  const strangers = [
    undefined,
    await trust.callers.foreign('x'),
    await trust.callers.expired('x'),
    await trust.agents.client('x'),
  ];
  for (const stranger of strangers) assert.equal((await dial(stranger)).status, 403);
  const { status, socket } = await dial(trust.caller);
  assert.equal(status, 200);
  // The agent may see its connection before the listener does. Once the echo is back, the listener has counted this connection and all
  // before it.
  socket.write('x');
  assert.equal(await next(socket), 'x');
  assert.equal(destination.accepted, 1);
});

across(
  EVERY_PAIR,
  'any minor version of HTTP/1 is served, and another major one answered with 505',
  async (scope, rig) => {
    const { server } = await rig();
    const { authority } = await echo(scope);
    for (const [version, status] of [
      ['1.0', 200],
      ['1.2', 200],
      ['2.0', 505],
    ] as const) {
      const socket = await open(scope, server.connect);
      socket.write(`CONNECT ${authority} HTTP/${version}\r\nHost: x\r\n\r\n`);
      assert.match(await next(socket), new RegExp(`^HTTP/1\\.1 ${status} `), version);
    }
  },
);

across(EVERY_PAIR, 'lines of a request end with line feeds, with or without carriage returns', async (scope, rig) => {
  const { server } = await rig();
  const { authority } = await echo(scope);
  for (const via of [server.connect, server.mtls])
    for (const [first, field, empty] of ['\n|\n|\n', '\n|\n|\r\n', '\r\n|\r\n|\n', '\r\n|\n|\n', '\n|\r\n|\n'].map(
      (ends) => ends.split('|'),
    )) {
      const socket = await open(scope, via);
      socket.write(`CONNECT ${authority} HTTP/1.1${first}Host: x${field}${empty}GET / HTTP/1.1\r\nHost: x\r\n\r\n`);
      let said = '';
      while (!said.endsWith('Host: x\r\n\r\n')) said += await next(socket);
      assert.match(said, /^HTTP\/1\.1 200 [^\r]*\r\n\r\nGET \/ HTTP\/1\.1\r\nHost: x\r\n\r\n$/);
    }
});
