import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import { deferred } from '@isthmus/runtime';
import {
  type Dial,
  DialError,
  type DialRequest,
  NotAuthorised,
  planeEvents,
  type TunnelOutcome,
} from '@isthmus/tunnel';
import { type CallerEdgeOptions, ConnectReader, connectEdge, RequestRefused } from './connect.ts';
import { destination, established } from './packets/testing.ts';
import { anyoneOf, type CallerPeer } from './tls/certificate.ts';

const REQUEST = 'CONNECT 127.0.0.1:1 HTTP/1.1\r\nhost: x\r\n\r\n';

/** A caller at an edge. A dial waits until it is aborted, unless the options say otherwise. */
async function connectTo(context: TestContext, options: Partial<CallerEdgeOptions>) {
  const events = planeEvents();
  const first = deferred<DialRequest>();
  const dial: Dial = (request) => {
    first.resolve(request);
    return new Promise((_resolve, reject) =>
      request.signal.addEventListener('abort', () => reject(new Error('the caller went away'))),
    );
  };
  const edge = connectEdge({ dial, identify: anyoneOf('default'), events, timeout: 60_000, ...options });
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => {}).once('data', (chunk) => edge.accept(socket, chunk));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const caller = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true }).on('error', () => {});
  return { caller, events, dialled: first.promise };
}

/** A caller that dials through an edge where every dial fails for this reason. */
async function refusedCaller(context: TestContext, reason: Error): Promise<net.Socket> {
  const { caller } = await connectTo(context, { dial: () => Promise.reject(reason) });
  caller.write(REQUEST);
  return caller;
}

const retryAfter: [reason: DialError, seconds: number][] = [
  [new DialError('destination_unavailable', 'No agent available'), 1],
  [new DialError('connection_limit_reached', 'tenant t has 2000 dials without an answer already'), 1],
  [new DialError('connection_limit_reached', 'socket: too many open files', { retryable: true }), 1],
  [new DialError('destination_unavailable', 'proxy is shutting down', { retryable: true, retryAfter: 0 }), 0],
];
for (const [reason, seconds] of retryAfter) {
  test(`after "${reason.message}" a caller is told to dial again in ${seconds} s`, async (context) => {
    const caller = await refusedCaller(context, reason);
    const answer = await text(caller);
    caller.end();
    assert.match(answer, /^HTTP\/1\.1 503 /);
    assert.match(answer, new RegExp(`\r\nretry-after: ${seconds}\r\n`));
  });
}

test('over a rate of its tenant a caller gets 429, with the limit and when to dial again', async (context) => {
  const reason = new DialError('connection_limit_reached', 'tenant t has reached its limit dialsPerSecond of 2', {
    limit: 'dialsPerSecond',
    retryAfter: 7,
  });
  const caller = await refusedCaller(context, reason);
  const answer = await text(caller);
  caller.end();
  assert.match(answer, /^HTTP\/1\.1 429 Too Many Requests: tenant t has reached its limit dialsPerSecond of 2\r\n/);
  assert.match(
    answer,
    /\r\nproxy-status: isthmus; error=connection_limit_reached; details=".*dialsPerSecond of 2"\r\n/,
  );
  assert.match(answer, /\r\nretry-after: 7\r\n/);
});

test('a refused caller that goes on sending is let go', { timeout: 60_000 }, async (context) => {
  const caller = await refusedCaller(context, new Error('refused'));
  const [answer] = await once(caller.setEncoding('latin1'), 'data');
  assert.match(answer, /^HTTP\/1\.1 502 /);
  const trickle = setInterval(() => caller.write('x'), 100);
  context.after(() => clearInterval(trickle));
  await new Promise((resolve) => caller.once('close', resolve));
});

const stranger = new NotAuthorised('nobody here is known by this port', { rule: 'acme.yaml: callers' });

test('a caller that may not dial reads why, and the refusal says what it wanted to dial', async (context) => {
  const { caller, events } = await connectTo(context, { identify: () => stranger });
  const refused = once(events, 'refused');
  const answer = await text(caller.end(REQUEST));
  assert.match(answer, /^HTTP\/1\.1 403 Forbidden: nobody here is known by this port\r\n/);
  assert.match(
    answer,
    /\r\nproxy-status: isthmus; error=http_request_denied; details="nobody here is known by this port"/,
  );
  const [where, , error] = (await refused) as [string, string, NotAuthorised];
  assert.equal(where, 'http-connect');
  assert.deepEqual([error.rule, error.destination], ['acme.yaml: callers', '127.0.0.1:1']);
});

test('a pending dial whose caller may dial no more is answered why, and aborted', async (context) => {
  let peer: CallerPeer | undefined;
  const { caller, dialled } = await connectTo(context, {
    identify(of) {
      peer = of;
      return anyoneOf('acme')(of);
    },
  });
  caller.write(REQUEST);
  const { signal, tenant } = await dialled;
  peer?.end(new Error('its certificate was revoked'));
  assert.match(await text(caller), /^HTTP\/1\.1 403 Forbidden: its certificate was revoked\r\n/);
  assert.deepEqual([tenant, signal.aborted], ['acme', true]);
  caller.end();
});

test('the tunnel of a caller that may dial no more is closed by the plane', async (context) => {
  let peer: CallerPeer | undefined;
  const { near } = destination();
  const { caller, events } = await connectTo(context, {
    identify(of) {
      peer = of;
      return anyoneOf('acme')(of);
    },
    dial: async () => established(near),
  });
  const closed = once(events, 'tunnel:close');
  const opened = once(caller, 'data');
  caller.write(REQUEST);
  await opened;
  peer?.end(new Error('its certificate was revoked'));
  const [, { closedBy, error }] = (await closed) as [unknown, TunnelOutcome];
  assert.deepEqual([closedBy, error?.message], ['plane', 'its certificate was revoked']);
  caller.destroy();
});

const TRACE = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';

function read(text: string, step = text.length) {
  const reader = new ConnectReader();
  const bytes = Buffer.from(text, 'latin1');
  for (let at = 0; at < bytes.length; at += step) {
    const request = reader.push(bytes.subarray(at, at + step));
    if (request) return { ...request, rest: request.rest.toString('latin1') };
  }
  return undefined;
}

test('a request is the same wherever it is split', () => {
  const text = `CONNECT [::1]:443 HTTP/1.1\r\nHost: elsewhere:1\r\nTraceParent: \t${TRACE} \r\nContent-Length: 0\r\n\r\n`;
  const wanted = { target: '[::1]:443', traceparent: TRACE, rest: '' };
  for (let step = 1; step <= text.length; step++) assert.deepEqual(read(text, step), wanted, `${step} bytes at a time`);
});

test('what stands behind the head is the tunnel’s', () => {
  assert.deepEqual(read('CONNECT a:1 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n'), {
    target: 'a:1',
    rest: 'GET / HTTP/1.1\r\n\r\n',
  });
});

test('a head without its end is no request yet', () => {
  assert.equal(read('CONNECT a:1 HTTP/1.1\r\nHost: a\r\n'), undefined);
});

const refusals: [name: string, text: string, status: number, message: RegExp][] = [
  ['another method', 'DELETE / HTTP/1.1\r\n\r\n', 405, /CONNECT, not "DELETE"/],
  ['a method of 16 KB', `${'x'.repeat(16_000)} / HTTP/1.1\r\n\r\n`, 405, /not "x{60}"$/],
  ['an older version', 'CONNECT a:1 HTTP/1.0\r\n\r\n', 400, /HTTP\/1\.0 is not served/],
  ['no version', 'CONNECT a:1\r\n\r\n', 400, /not an HTTP request: "CONNECT a:1"/],
  ['two spaces', 'CONNECT  a:1 HTTP/1.1\r\n\r\n', 400, /not an HTTP request/],
  ['a line that ends with a line feed alone', 'CONNECT a:1 HTTP/1.1\nHost: a\r\n\r\n', 400, /not an HTTP request/],
  ['a line feed within a value', 'CONNECT a:1 HTTP/1.1\r\nX: a\nY: b\r\n\r\n', 400, /not a header field/],
  ['a space before the colon', 'CONNECT a:1 HTTP/1.1\r\nContent-Length : 0\r\n\r\n', 400, /not a header field/],
  ['a length in two numbers', 'CONNECT a:1 HTTP/1.1\r\nContent-Length: 0, 5\r\n\r\n', 400, /no body/],
  [
    'a length that is overruled',
    'CONNECT a:1 HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 0\r\n\r\n',
    400,
    /no body/,
  ],
  ['a first byte of TLS', '\x16', 400, /not an HTTP request/],
  ['an empty line ahead', '\r\nCONNECT a:1 HTTP/1.1\r\n\r\n', 400, /not an HTTP request/],
  ['a head without an end', `CONNECT a:1 HTTP/1.1\r\nX: ${'x'.repeat(16_384)}`, 431, /longer than 16384 bytes/],
  ['a head that is too long', `CONNECT a:1 HTTP/1.1\r\nX: ${'x'.repeat(16_384)}\r\n\r\n`, 431, /longer than 16384/],
];
for (const [name, text, status, message] of refusals) {
  test(`${name} is refused with ${status}`, () => {
    assert.throws(
      () => read(text),
      (error) => error instanceof RequestRefused && error.status === status && message.test(error.message),
    );
  });
}
