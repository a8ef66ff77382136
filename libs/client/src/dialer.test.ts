import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { createServer as createHttpsServer, get } from 'node:https';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import { createServer as createTlsServer } from 'node:tls';
import { Authority } from '@isthmus/certificates/testing';
import { within } from '@isthmus/runtime/testing';
import { CLIENT } from './defaults.ts';
import { createDialer } from './dialer.ts';
import { DialError, sniOf } from './gateways.ts';

const ESTABLISHED = 'HTTP/1.1 200 Connection Established\r\n\r\n';

type Answer = (socket: Socket, head: string) => void;

function serving(context: TestContext, heads: string[], answer: Answer) {
  return (socket: Socket) => {
    socket.on('error', () => {});
    context.after(() => void socket.destroy());
    socket.once('data', (head) => {
      heads.push(String(head));
      answer(socket, String(head));
    });
  };
}

function place(context: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-client-'));
  context.after(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** A gateway at a unix socket that answers each CONNECT as it is told. `heads` are what it was asked. */
async function local(context: TestContext, answer: Answer) {
  const heads: string[] = [];
  const path = join(place(context), 'gateway.sock');
  const server = createServer({ allowHalfOpen: true }, serving(context, heads, answer));
  context.after(() => server.close());
  await once(server.listen(path), 'listening');
  return { heads, url: `unix:${path}` };
}

/** The same over TLS. */
async function remote(context: TestContext, answer: Answer) {
  const heads: string[] = [];
  const authority = await Authority.create(place(context), 'callers');
  const [ca, own] = [readFileSync(authority.cert), await authority.server()];
  const tls = { cert: readFileSync(own.cert), key: readFileSync(own.key), allowHalfOpen: true };
  const server = createTlsServer(tls, serving(context, heads, answer));
  context.after(() => server.close());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return { heads, ca, url: `https://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

const echoes: Answer = (socket) => {
  socket.write(ESTABLISHED);
  socket.pipe(socket);
};

const says =
  (...lines: readonly string[]): Answer =>
  (socket) =>
    socket.end(`${lines.join('\r\n')}\r\n\r\nthe body\n`);

const hangsUp: Answer = (socket) => socket.destroy();

const silent: Answer = () => {};

const NOBODY = 'unix:/nonexistent/gateway.sock';

/** The error of a dial. */
function failure(dial: Promise<unknown>): Promise<DialError> {
  return within(
    dial.then(
      () => assert.fail('the dial succeeded'),
      (error) => error,
    ),
  );
}

test('a dial asks for its destination, and returns a tunnel with a half-close', async (context) => {
  const { heads, url } = await local(context, (socket) => {
    socket.write(`${ESTABLISHED}first, `);
    socket.pipe(socket);
  });
  const dialer = createDialer({ gateway: url, traceparent: () => `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01` });
  const tunnel = await dialer.dial('node-1', 10250);
  tunnel.end('then the echo');
  assert.equal(await within(text(tunnel)), 'first, then the echo');
  const traceparent = `00-${'c'.repeat(32)}-${'d'.repeat(16)}-01`;
  for (const host of ['fd00::1', '[fd00::1]']) (await dialer.dial(host, 1, { traceparent })).destroy();
  (await createDialer({ gateway: url }).dial('10.0.0.1', 443, { traceparent: 'x\r\nevil: 1' })).destroy();
  assert.deepEqual(heads, [
    `CONNECT node-1:10250 HTTP/1.1\r\nhost: node-1:10250\r\ntraceparent: 00-${'a'.repeat(32)}-${'b'.repeat(16)}-01\r\n\r\n`,
    ...Array(2).fill(`CONNECT [fd00::1]:1 HTTP/1.1\r\nhost: [fd00::1]:1\r\ntraceparent: ${traceparent}\r\n\r\n`),
    'CONNECT 10.0.0.1:443 HTTP/1.1\r\nhost: 10.0.0.1:443\r\n\r\n',
  ]);
});

test('a refusal is an error as the plane says it, and no other gateway is asked', async (context) => {
  const refuses = await local(
    context,
    says(
      'HTTP/1.1 503 Service Unavailable: no agent',
      `Proxy-Status: isthmus; error=destination_unavailable; details="No agent \\"a\\" available"; trace-id="${'e'.repeat(32)}"`,
      'retry-after: 1',
    ),
  );
  const other = await local(context, echoes);
  const error = await failure(createDialer({ gateway: [refuses.url, other.url] }).dial('a', 1));
  assert.ok(error instanceof DialError);
  const { code, message, status, retryable, retryAfter, traceId } = error;
  assert.deepEqual(
    { code, message, status, retryable, retryAfter, traceId },
    {
      code: 'destination_unavailable',
      message: 'No agent "a" available',
      status: 503,
      retryable: true,
      retryAfter: 1,
      traceId: 'e'.repeat(32),
    },
  );
  assert.deepEqual(other.heads, []);
  const forbids = await local(
    context,
    says('HTTP/1.1 403 Forbidden: no', 'proxy-status: isthmus; error=destination_ip_prohibited; details="no"'),
  );
  const forbidden = await failure(createDialer({ gateway: forbids.url }).dial('a', 1));
  assert.deepEqual([forbidden.code, forbidden.retryable], ['destination_ip_prohibited', false]);
});

test('a gateway without an answer, or that sends its callers elsewhere, is passed over; the one that answered comes first', async (context) => {
  const leaving = says(
    'HTTP/1.1 503 Service Unavailable: bye',
    'proxy-status: isthmus; error=destination_unavailable; details="proxy is shutting down"',
    'retry-after: 0',
  );
  const [gone, leaves, works] = [
    await local(context, hangsUp),
    await local(context, leaving),
    await local(context, echoes),
  ];
  const dialer = createDialer({ gateway: [NOBODY, gone.url, leaves.url, works.url] });
  for (let dial = 0; dial < 2; dial++) (await dialer.dial('a', 1)).destroy();
  assert.deepEqual([gone.heads.length, leaves.heads.length, works.heads.length], [1, 1, 2]);
  const all = await failure(createDialer({ gateway: [gone.url, leaves.url] }).dial('a', 1));
  assert.deepEqual([all.code, all.status, all.retryable], ['destination_unavailable', 503, true]);
  const none = await failure(createDialer({ gateway: [NOBODY, gone.url] }).dial('a', 1));
  assert.deepEqual([none.code, none.status, none.retryable], ['gateway_unreachable', undefined, true]);
  assert.match(none.message, /^dial a:1: unix:\/nonexistent.*ENOENT.*; unix:.*closed the connection before an answer$/);
  assert.equal((none.cause as AggregateError).errors.length, 2);
});

test('what is no answer of a gateway is named', async (context) => {
  const of = async (answer: Answer) => {
    const { url } = await local(context, answer);
    return failure(createDialer({ gateway: url }).dial('a', 1));
  };
  const [proxy, noise] = [await of(says('HTTP/1.1 502 Bad Gateway')), await of(says('SSH-2.0-x', ''))];
  assert.deepEqual([proxy.code, proxy.status], ['http_protocol_error', 502]);
  assert.match(proxy.message, /answered 502 Bad Gateway without Proxy-Status/);
  assert.match(
    (await of(says('HTTP/1.1 502 Bad \u001b[31mGateway'))).message,
    /answered 502 Bad \?\[31mGateway without/,
  );
  assert.match(noise.message, /its answer is not HTTP\/1\.1/);
  const alert = await of((socket) => socket.write(Buffer.of(0x15, 3, 3, 0, 2, 2, 10)));
  assert.match(alert.message, /its answer is not HTTP\/1\.1/, 'it waits for no end of what is no HTTP');
  const endless = await of((socket) => socket.write('HTTP/1.1 200 OK\r\nx: '.padEnd(CLIENT.headBytes + 100, 'x')));
  assert.match(endless.message, /head of over 16384 bytes/);
});

test('a dial ends at its time-out, and when nobody waits for it', async (context) => {
  const { url, heads } = await local(context, silent);
  const dialer = createDialer({ gateway: [url, NOBODY] });
  const late = await failure(dialer.dial('a', 1, { timeoutMs: 20 }));
  assert.deepEqual([late.code, late.message], ['connection_timeout', 'dial a:1: no answer in 20 ms']);
  for (const reason of [new Error('enough'), null]) {
    const waits = new AbortController();
    const given = failure(dialer.dial('a', 1, { signal: waits.signal }));
    waits.abort(reason);
    assert.equal(await given, reason);
    assert.equal(await failure(dialer.dial('a', 1, { signal: waits.signal })), reason);
  }
  assert.ok(heads.length <= 3);
});

test('a dial ends at its time-out, and when nobody waits for it, while credentials are awaited', async (context) => {
  const { url, heads } = await local(context, echoes);
  const forever = createDialer({ gateway: url, credentials: () => new Promise<never>(() => {}) });
  assert.equal((await failure(forever.dial('a', 1, { timeoutMs: 20 }))).code, 'connection_timeout');
  const reason = new Error('enough');
  const waits = new AbortController();
  const given = failure(forever.dial('a', 1, { signal: waits.signal }));
  waits.abort(reason);
  assert.equal(await given, reason);
  // Its credentials come, and nobody waits any more.
  const left = new AbortController();
  const credentials = async () => {
    left.abort(reason);
    return { token: 's3cret' };
  };
  assert.equal(
    await failure(createDialer({ gateway: url, credentials }).dial('a', 1, { signal: left.signal })),
    reason,
  );
  assert.deepEqual(heads, []);
});

test('no name has its last dot in TLS: of a gateway, or of a destination', async (context) => {
  const authority = await Authority.create(place(context), 'names');
  const [ca, own] = [readFileSync(authority.cert), await authority.server()];
  const sent: unknown[] = [];
  const destination = createHttpsServer(
    { cert: readFileSync(own.cert), key: readFileSync(own.key) },
    (_request, response) => response.end('there'),
  ).on('secureConnection', (socket) => sent.push(socket.servername));
  context.after(() => destination.close());
  await once(destination.listen(0, '127.0.0.1'), 'listening');
  const { port } = destination.address() as AddressInfo;
  const { url } = await local(context, (socket) => {
    socket.write(ESTABLISHED);
    const to = connect(port, '127.0.0.1').on('error', () => {});
    socket.pipe(to).pipe(socket);
  });
  const dialer = createDialer({ gateway: url });
  const agent = dialer.httpsAgent({ ca });
  const [answer] = (await once(get({ agent, host: 'localhost.', port: 443 }), 'response')) as [IncomingMessage];
  assert.equal(await text(answer), 'there');
  agent.destroy();
  assert.deepEqual(sent, ['localhost']);
  assert.deepEqual(['gw.example.', '127.0.0.1'].map(sniOf), [{ servername: 'gw.example' }, {}]);
});

test('a token is sent over TLS as Basic with its tenant, else as Bearer, is renewed, and never to a unix socket', async (context) => {
  const { url, ca, heads } = await remote(context, echoes);
  let asked = 0;
  const credentials = () => (asked++ === 0 ? { tenant: 'acme', token: 's3cret' } : { token: 's3cret' });
  const dialer = createDialer({ gateway: url, ca, credentials });
  const tunnel = await dialer.dial('a', 1);
  tunnel.end('through TLS');
  assert.equal(await within(text(tunnel)), 'through TLS');
  (await dialer.dial('a', 1)).destroy();
  const sent = heads.map((head) => /proxy-authorization: (.*)\r\n/.exec(head)?.[1]);
  assert.deepEqual(sent, [`Basic ${Buffer.from('acme:s3cret').toString('base64')}`, 'Bearer s3cret']);
  const beside = await local(context, echoes);
  (await createDialer({ gateway: beside.url, credentials: { token: 's3cret' } }).dial('a', 1)).destroy();
  assert.doesNotMatch(String(beside.heads), /authorization/);
  for (const wrong of [{ token: 's3\r\ncret' }, { tenant: 'a:b', token: 's3cret' }]) {
    const error = await failure(createDialer({ gateway: url, ca, credentials: wrong }).dial('a', 1));
    assert.equal(error.code, 'http_request_error');
    assert.doesNotMatch(`${error.stack}`, /s3/);
  }
  const stranger = await failure(createDialer({ gateway: url }).dial('a', 1));
  assert.match(stranger.message, /certificate/);
});

test('what is no gateway and no destination is refused before anything is sent', async () => {
  const password = 'https://acme:s3cret@gateway:8090';
  for (const gateway of ['http://a:1', 'gateway:8090', 'unix:relative', password, 'https://a:1/path', []])
    assert.throws(
      () => createDialer({ gateway }),
      (error: Error) => error instanceof TypeError && !error.message.includes('s3cret'),
    );
  const dialer = createDialer({ gateway: NOBODY });
  for (const [host, port] of [
    ['', 1],
    ['a b', 1],
    ['a\r\nx: y', 1],
    ['a', 0],
    ['a', 65536],
    ['a', 1.5],
    ['::g', 1],
  ] as const)
    assert.equal((await failure(dialer.dial(host, port))).code, 'http_request_error', host);
});
