import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { randomHex } from '@isthmus/runtime';
import { changed, costsItsLength } from '@isthmus/runtime/testing';
import {
  type Dial,
  DialError,
  type DialRequest,
  NotAuthorised,
  planeEvents,
  type TunnelOutcome,
} from '@isthmus/tunnel';
import { type CallerEdgeOptions, connectEdge, readConnect } from './connect.ts';
import { TRANSPORT } from './defaults.ts';
import { Pieces, RequestRefused, requestIn } from './http1.ts';
import type { ProxyCredential } from './identity.ts';
import { anyoneOf, type CallerIdentity, type ConnectionPeer, requests } from './listen.ts';
import { destination, established } from './packets/testing.ts';
import { SocketEnd } from './socket-end.ts';

const REQUEST = 'CONNECT 127.0.0.1:1 HTTP/1.1\r\nhost: x\r\n\r\n';

/** A caller at an edge. A dial waits until it is aborted, unless the options say otherwise. */
async function connectTo(
  context: TestContext,
  { unixSocket = false, ...options }: Partial<CallerEdgeOptions> & { readonly unixSocket?: boolean },
) {
  const events = planeEvents();
  const first = Promise.withResolvers<DialRequest>();
  const dial: Dial = (request) => {
    first.resolve(request);
    return new Promise((_resolve, reject) =>
      request.signal.addEventListener('abort', () => reject(new Error('the caller went away'))),
    );
  };
  const edge = requests(
    connectEdge({ dial, identifyCaller: anyoneOf('default'), events, timeout: 60_000, ...options }),
  );
  const accepted = Promise.withResolvers<net.Socket>();
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => {}).once('data', (chunk) => edge(new SocketEnd(socket), chunk));
    accepted.resolve(socket);
  });
  const path = join(tmpdir(), `connect-${randomHex(8)}.sock`);
  server.listen(unixSocket ? { path } : { port: 0, host: '127.0.0.1' });
  await once(server, 'listening');
  context.after(() => server.close());
  const address = unixSocket ? { path } : { port: (server.address() as AddressInfo).port, host: '127.0.0.1' };
  const another = () => net.connect({ ...address, allowHalfOpen: true }).on('error', () => {});
  return { caller: another(), another, events, dialled: first.promise, accepted: accepted.promise };
}

const ESTABLISHED = 'HTTP/1.1 200 Connection Established\r\n\r\n';

const ends: [from: string, options: { unixSocket?: boolean; byToken?: boolean }][] = [
  ['TCP', {}],
  ['a unix socket', { unixSocket: true }],
  ['a unix socket, by token', { unixSocket: true, byToken: true }],
];
for (const [from, { unixSocket = false, byToken = false }] of ends) {
  for (const early of ['', 'ping', 'x'.repeat(2 * TRANSPORT.earlyBytes)]) {
    test(`from ${from}, an end before the answer is the tunnel's, behind ${early.length} early bytes`, {
      timeout: 60_000,
      skip: unixSocket && 'Deno' in globalThis && 'Deno takes it for a caller that has gone',
    }, async (context) => {
      const { near, far } = destination();
      far.pipe(far);
      const hasEnded = async () => {
        const socket = await accepted;
        // The gateway reads no further than it may keep.
        if (early.length < TRANSPORT.earlyBytes && !socket.readableEnded) await once(socket, 'end');
      };
      const { caller, accepted } = await connectTo(context, {
        unixSocket,
        async dial() {
          await hasEnded();
          return established(near);
        },
        ...(byToken && {
          async identifyByToken() {
            await hasEnded();
            return { tenant: 'default', caller: { identity: 'token' } };
          },
        }),
      });
      caller.end(`${byToken ? asking(BASIC) : REQUEST}${early}`);
      assert.equal(await text(caller), `${ESTABLISHED}${early}`);
    });
  }
}

for (const [from, { unixSocket = false, byToken = false }] of ends)
  test(`from ${from}, a tunnel keeps neither its request nor the bytes behind it`, {
    skip: 'Deno' in globalThis,
  }, async (context) => {
    setFlagsFromString('--expose-gc');
    const gc: () => void = runInNewContext('gc');
    const { near, far } = destination();
    const peers: ConnectionPeer[] = [];
    const kept: WeakRef<object>[] = [];
    const who = anyoneOf('acme');
    // Identities keep their callers' connections, to end them.
    const identify = (peer: ConnectionPeer) => {
      peers.push(peer);
      return who(peer) as CallerIdentity;
    };
    const { caller, accepted } = await connectTo(context, {
      unixSocket,
      dial: async () => established(near),
      identifyCaller: identify,
      ...(byToken && {
        async identifyByToken(peer, credential) {
          kept.push(new WeakRef(credential));
          return identify(peer);
        },
      }),
    });
    (await accepted).once('data', (chunk) => void kept.push(new WeakRef(chunk.buffer)));
    context.after(() => caller.destroy());
    const early = 'x'.repeat(20_000);
    let left = early.length;
    const arrived = new Promise<void>((resolve) => {
      far.on('data', ({ length }) => {
        left -= length;
        if (left === 0) resolve();
      });
    });
    caller.write(`${byToken ? asking(BASIC) : REQUEST}${early}`);
    await arrived;
    await setImmediate();
    gc();
    assert.deepEqual(
      kept.map((each) => each.deref()),
      byToken ? [undefined, undefined] : [undefined],
    );
    assert.equal(peers.length, 1);
  });

test('a dial ends with its caller: one that resets its connection, or closes its unix socket', {
  timeout: 60_000,
}, async (context) => {
  for (const unixSocket of [false, true]) {
    const { caller, dialled } = await connectTo(context, { unixSocket });
    caller.write(`${REQUEST}early`);
    const { signal } = await dialled;
    const aborted = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
    if (unixSocket) caller.destroy();
    else caller.resetAndDestroy();
    await aborted;
  }
});

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
  using _ = changed(TRANSPORT, { refusedPeerMs: 500 });
  const caller = await refusedCaller(context, new Error('refused'));
  const [answer] = await once(caller.setEncoding('latin1'), 'data');
  assert.match(answer, /^HTTP\/1\.1 502 /);
  const trickle = setInterval(() => caller.write('x'), 100);
  context.after(() => clearInterval(trickle));
  await new Promise((resolve) => caller.once('close', resolve));
});

test('a refused caller that had sent much early, and sends on, reads its answer, and all that it sends is read', {
  timeout: 60_000,
}, async (context) => {
  const refused = Promise.withResolvers<never>();
  const { caller, accepted } = await connectTo(context, { dial: () => refused.promise });
  caller.write(`${REQUEST}${'x'.repeat(TRANSPORT.earlyBytes)}`);
  const socket = await accepted;
  while (!socket.isPaused()) await setImmediate();
  refused.reject(new Error('refused'));
  const [answer] = await once(caller.setEncoding('latin1'), 'data');
  assert.match(answer, /^HTTP\/1\.1 502 /);
  // More than the process reads in a tick of the event loop.
  caller.end(Buffer.alloc(16 * 1024 * 1024));
  await Promise.race([once(socket, 'end'), once(socket, 'close')]);
  assert.equal(socket.readableEnded, true, `${socket.bytesRead} bytes were read`);
});

const stranger = new NotAuthorised('nobody here is known by this port', { rule: 'acme.yaml: callers' });

test('a caller that may not dial reads why, and the refusal says what it wanted to dial', async (context) => {
  const { caller, events } = await connectTo(context, { identifyCaller: () => stranger });
  const refused = once(events, 'refused');
  const answer = await text(caller.end(REQUEST));
  assert.match(answer, /^HTTP\/1\.1 403 Forbidden: not authorised: [^\r]*\r\n/);
  assert.match(answer, /\r\nproxy-status: isthmus; error=http_request_denied; details="not authorised: /);
  const [where, , error] = (await refused) as [string, string, NotAuthorised];
  assert.equal(where, 'http-connect');
  assert.deepEqual([error.rule, error.destination], ['acme.yaml: callers', '127.0.0.1:1']);
});

test('a pending dial whose caller may dial no more is answered why, and aborted', async (context) => {
  let peer: ConnectionPeer | undefined;
  const { caller, dialled } = await connectTo(context, {
    identifyCaller(of) {
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
  let peer: ConnectionPeer | undefined;
  const { near } = destination();
  const { caller, events } = await connectTo(context, {
    identifyCaller(of) {
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
  const [, { by, error }] = (await closed) as [unknown, TunnelOutcome];
  assert.deepEqual([by, error?.message], ['credential', 'its certificate was revoked']);
  caller.destroy();
});

const TRACE = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';

function read(text: string, step = text.length) {
  const pieces = new Pieces();
  const bytes = Buffer.from(text, 'latin1');
  for (let at = 0; at < bytes.length; at += step) {
    const head = requestIn(pieces.add(bytes.subarray(at, at + step)), at);
    if (head) return { ...readConnect(head), rest: head.rest.toString('latin1') };
  }
  return undefined;
}

test('a request is the same wherever it is split', () => {
  const text = `CONNECT [::1]:443 HTTP/1.1\r\nHost: elsewhere:1\r\nTraceParent: \t${TRACE} \r\nContent-Length: 0\r\n\r\n`;
  const wanted = { target: '[::1]:443', traceparent: TRACE, rest: '', credentials: [] };
  for (let step = 1; step <= text.length; step++) assert.deepEqual(read(text, step), wanted, `${step} bytes at a time`);
});

test('what stands behind the head is the tunnel’s', () => {
  assert.deepEqual(read('CONNECT a:1 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n'), {
    target: 'a:1',
    rest: 'GET / HTTP/1.1\r\n\r\n',
    credentials: [],
  });
});

/** What comes behind a head: it may look like the end of one, or like another. */
const EARLY = ['', 'early', 'GET / HTTP/1.1\r\nHost: x\r\n\r\n', '\n\n', '\r\n\r\n', '\n', '\r\n', 'a\n\r\nb\n\nc'];

/** What a caller at a door gets served, or is refused with, and its early bytes. It sends pieces that are read one by one. */
function servedOf(pieces: readonly Buffer[]) {
  const socket = new net.Socket();
  const end = new SocketEnd(socket);
  let seen: unknown;
  let rest = '';
  const accept = requests({
    serve(_, head) {
      seen = readConnect(head).target;
      rest = head.rest.toString('latin1');
    },
    refuse: (_, error) => {
      seen = (error as RequestRefused).status;
    },
    fault: (_, error) => assert.fail(error),
  });
  for (const [index, piece] of pieces.entries()) {
    if (seen !== undefined) rest += piece.toString('latin1');
    else if (index === 0) accept(end, piece);
    else socket.emit('data', piece);
  }
  socket.destroy();
  return { seen, rest: typeof seen === 'number' ? '' : rest };
}

for (const [ends, head] of [
  ['line feeds', 'CONNECT a:1 HTTP/1.1\nHost: a\n\n'],
  ['line feeds, without fields', 'CONNECT a:1 HTTP/1.1\n\n'],
  ['both', 'CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n'],
  ['line feeds, and the empty one both', 'CONNECT a:1 HTTP/1.1\nHost: a\n\r\n'],
  ['both, and the empty one a line feed', 'CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\n'],
  ['now one, now the other', 'CONNECT a:1 HTTP/1.1\nHost: a\r\nX: b\nY: c\r\n\n'],
] as const) {
  test(`lines end as for Go’s servers, however they are cut: ${ends}`, () => {
    for (const early of EARLY) {
      const bytes = Buffer.from(head + early);
      const wanted = { seen: 'a:1', rest: early };
      for (let at = 1; at <= bytes.length; at++)
        assert.deepEqual(servedOf([bytes.subarray(0, at), bytes.subarray(at)]), wanted, `cut at ${at}`);
      assert.deepEqual(servedOf([...bytes].map((byte) => Buffer.of(byte))), wanted, 'byte by byte');
    }
  });
}

test('a head of line feeds ends where it ends, however much comes behind it', () => {
  const early = `${'x'.repeat(TRANSPORT.requestHeadBytes)}\r\n\r\n`;
  assert.equal(read(`CONNECT a:1 HTTP/1.1\n\n${early}`)?.rest, early);
});

test('a head is as long as it may be, or too long, however it is cut', () => {
  for (const end of ['\n\n', '\n\r\n', '\r\n\n', '\r\n\r\n'])
    for (const more of [0, 1]) {
      const start = 'CONNECT a:1 HTTP/1.1\r\nX: ';
      const filler = 'x'.repeat(TRANSPORT.requestHeadBytes - start.length + more);
      const bytes = Buffer.from(`${start}${filler}${end}early`);
      for (let at = bytes.length - 12; at <= bytes.length; at++) {
        const { seen } = servedOf([bytes.subarray(0, at), bytes.subarray(at)]);
        assert.equal(seen, more ? 431 : 'a:1', `${JSON.stringify(end)} cut at ${at}`);
      }
    }
});

for (const minor of [0, 1, 2, 9])
  test(`HTTP/1.${minor} is HTTP/1 (RFC 9110 section 2.5)`, () => {
    assert.equal(read(`CONNECT a:1 HTTP/1.${minor}\r\n\r\n`)?.target, 'a:1');
  });

test('a head without its end is no request yet', () => {
  assert.equal(read('CONNECT a:1 HTTP/1.1\r\nHost: a\r\n'), undefined);
});

const refusals: [name: string, text: string, status: number, message: RegExp][] = [
  ['another method', 'DELETE / HTTP/1.1\r\n\r\n', 405, /CONNECT, not "DELETE"/],
  ['a method of 16 KB', `${'x'.repeat(16_000)} / HTTP/1.1\r\n\r\n`, 405, /not "x{60}"$/],
  ['an older version', 'CONNECT a:1 HTTP/0.9\r\n\r\n', 505, /HTTP\/0\.9 is not served/],
  ['a later version', 'CONNECT a:1 HTTP/2.0\r\n\r\n', 505, /HTTP\/2\.0 is not served/],
  ['a target with a password', 'CONNECT acme:secret@a:1 HTTP/1.1\r\n\r\n', 400, /^(?!.*secret).*names a user/],
  ['a password without a version', 'CONNECT acme:secret@a:1\r\n\r\n', 400, /^(?!.*secret).*not an HTTP request/],
  ['no version', 'CONNECT a:1\r\n\r\n', 400, /not an HTTP request: "CONNECT a:1"/],
  ['two spaces', 'CONNECT  a:1 HTTP/1.1\r\n\r\n', 400, /not an HTTP request/],
  ['a carriage return alone', 'CONNECT a:1 HTTP/1.1\rHost: a\r\n\r\n', 400, /not an HTTP request/],
  ['two carriage returns at a line', 'CONNECT a:1 HTTP/1.1\r\r\n\r\n', 400, /not an HTTP request/],
  ['two carriage returns at a field', 'CONNECT a:1 HTTP/1.1\nX: a\r\r\n\n', 400, /line 2 of the head is not/],
  ['two carriage returns as the empty line', 'CONNECT a:1 HTTP/1.1\n\r\r\n\n', 400, /line 2 of the head is not/],
  ['a carriage return within a value', 'CONNECT a:1 HTTP/1.1\nX: a\rY: b\n\n', 400, /line 2 of the head is not/],
  ['a line of spaces', 'CONNECT a:1 HTTP/1.1\nX: a\n \n\n', 400, /line 3 of the head is not/],
  ['a NUL within a value', 'CONNECT a:1 HTTP/1.1\nX: a\0b\n\n', 400, /line 2 of the head is not/],
  ['a password before a carriage return', 'CONNECT a:secret@a:1 HTTP/1.1\rx\n\n', 400, /^(?!.*secret)/],
  ['a space before the colon', 'CONNECT a:1 HTTP/1.1\r\nContent-Length : 0\r\n\r\n', 400, /not a header field/],
  ['a length in two numbers', 'CONNECT a:1 HTTP/1.1\r\nContent-Length: 0, 5\r\n\r\n', 400, /no body/],
  [
    'a length that is overruled',
    'CONNECT a:1 HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 0\r\n\r\n',
    400,
    /no body/,
  ],
  ['two Hosts', 'CONNECT a:1 HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n', 400, /several Host/],
  ['a first byte of TLS', '\x16', 400, /not an HTTP request/],
  ['an empty line ahead', '\r\nCONNECT a:1 HTTP/1.1\r\n\r\n', 400, /not an HTTP request/],
  ['a head without an end', `CONNECT a:1 HTTP/1.1\r\nX: ${'x'.repeat(32_768)}`, 431, /longer than 32768 bytes/],
  ['a head that is too long', `CONNECT a:1 HTTP/1.1\r\nX: ${'x'.repeat(32_768)}\r\n\r\n`, 431, /longer than 32768/],
];
for (const [name, text, status, message] of refusals) {
  test(`${name} is refused with ${status}`, () => {
    assert.throws(
      () => read(text),
      (error) => error instanceof RequestRefused && error.status === status && message.test(error.message),
    );
  });
}

test('what is no request costs what its length costs, and none of it that may be a password is told', () => {
  const line = `CONNECT ${'x'.repeat(32_000)}`;
  costsItsLength(() => {
    for (let n = 0; n < 128; n++) assert.throws(() => read(`${line}\r\n\r\n`), /not an HTTP request: "CONNECT x{52}"$/);
  });
  assert.throws(
    () => read('CONNECT a:b@c:d@e:1 f@g h\r\n\r\n'),
    /not an HTTP request: "CONNECT \.\.\.@e:1 \.\.\.@g h"$/,
  );
});

const BASIC = `Proxy-Authorization: Basic ${Buffer.from('acme:good').toString('base64')}`;
const by = (token: string) => `Proxy-Authorization: bearer ${token}`;
const asking = (...lines: string[]) => ['CONNECT 127.0.0.1:1 HTTP/1.1', ...lines, '', ''].join('\r\n');

/** A caller on a unix socket, where tokens may be shown without TLS, at an edge that knows the token `good`. */
async function tokenCaller(context: TestContext, options: Parameters<typeof connectTo>[1] = {}) {
  const shown: ProxyCredential[] = [];
  const at = await connectTo(context, {
    identifyCaller: () => new NotAuthorised('show a token', { challenge: true }),
    async identifyByToken(peer, credential) {
      shown.push(credential);
      if (credential.token !== 'good') throw new NotAuthorised('the token is wrong');
      return { tenant: 'acme', caller: { identity: peer.remote, remote: peer.remote } };
    },
    unixSocket: true,
    ...options,
  });
  at.caller.setEncoding('latin1');
  const refused: string[] = [];
  at.events.on('refused', (where, _remote, { message }) => refused.push(`${where}: ${message}`));
  const ask = async (...lines: string[]) => {
    at.caller.write(asking(...lines));
    const [answer] = (await once(at.caller, 'data')) as [string];
    return answer;
  };
  return { ...at, shown, refused, ask };
}

test('a caller without a token is asked for one, and may show it on another connection', async (context) => {
  const { shown, refused, dialled, ask, another } = await tokenCaller(context);
  const challenge = await ask();
  assert.match(challenge, /^HTTP\/1\.1 407 Proxy Authentication Required: not authorised: [^\r]*\r\n/);
  assert.match(
    challenge,
    /\r\nproxy-authenticate: Basic realm="isthmus", charset="UTF-8"\r\nproxy-authenticate: Bearer /,
  );
  assert.match(challenge, /\r\nconnection: close\r\n.*\r\n\r\nnot authorised: .*\n$/s);
  another().end(asking(by('bad')));
  const caller = another();
  caller.write(asking(BASIC));
  assert.equal((await dialled).tenant, 'acme');
  assert.deepEqual(new Set(shown.map(({ token }) => token)), new Set(['bad', 'good']));
  assert.equal(refused[0], 'http-connect: show a token');
  caller.destroy();
});

for (const early of ['', asking(BASIC)])
  test(`what comes behind a request with a wrong token is no request: ${early.length} bytes`, async (context) => {
    const { caller, shown } = await tokenCaller(context);
    caller.end(`${asking(by('bad'))}${early}`);
    assert.match(await text(caller), /^HTTP\/1\.1 407 [^\r]*\r\n(?!.*HTTP\/1)/s);
    assert.deepEqual(shown, [{ token: 'bad' }]);
  });

test('a token that nobody can judge now is no wrong one', async (context) => {
  const { caller, ask } = await tokenCaller(context, {
    identifyByToken: () => Promise.reject(new NotAuthorised('the API server is away', { undecided: true })),
  });
  assert.match(
    await ask(by('good')),
    /^HTTP\/1\.1 503 .*: the credential cannot be verified now.*\r\nretry-after: 1\r\n/s,
  );
  caller.end();
});

const malformed: [name: string, lines: string[], answer: RegExp][] = [
  ['two of them', [BASIC, BASIC], /^HTTP\/1\.1 400 .*several/],
  ['both schemes in two', [BASIC, by('good')], /^HTTP\/1\.1 400 .*several/],
  ['both schemes in one', [`${BASIC}, Bearer good`], /^HTTP\/1\.1 400 .*one scheme/],
  ['Basic that is no base64', ['Proxy-Authorization: Basic acme:secret'], /^HTTP\/1\.1 400 .*not the base64/],
  ['Basic without a colon', ['Proxy-Authorization: Basic c2VjcmV0'], /^HTTP\/1\.1 400 .*not the base64/],
  ['Basic that is no UTF-8', ['Proxy-Authorization: Basic /zphCg=='], /^HTTP\/1\.1 400 .*UTF-8/],
  ['a token that is none', [by('secret"')], /^HTTP\/1\.1 400 .*characters/],
  ['a folded line', [`Proxy-Authorization: Basic`, ' YWNtZTpzZWNyZXQ='], /^HTTP\/1\.1 400 .*line 3 of the head/],
  ['another scheme', ['Proxy-Authorization: Negotiate secret'], /^HTTP\/1\.1 407 .*scheme/],
];
for (const [name, lines, wanted] of malformed) {
  test(`Proxy-Authorization: ${name}: a clear answer, and nothing of it in any text`, async (context) => {
    const { caller, ask, refused } = await tokenCaller(context);
    const answer = await ask(...lines);
    assert.match(answer, wanted);
    assert.equal(refused.length, 1);
    assert.doesNotMatch(answer + refused.join(), /secret|c2Vjc|YWNtZ|good/);
    caller.destroy();
  });
}

test('a token in a name of UTF-8 is read as what it is', async (context) => {
  const { caller, shown, ask } = await tokenCaller(context);
  await ask(`Proxy-Authorization: Basic ${Buffer.from('bücher:a:b').toString('base64')}`);
  assert.deepEqual(shown, [{ tenant: 'bücher', token: 'a:b' }]);
  caller.destroy();
});

test('a token over plain text is refused, and not even looked at', async (context) => {
  const { caller, shown, ask } = await tokenCaller(context, { unixSocket: false });
  assert.match(await ask(BASIC), /^HTTP\/1\.1 403 .*plain text.*make a new token\r\n/);
  assert.deepEqual(shown, []);
  caller.end();
});

test('a head of 32 KiB that arrives slowly has a place of its own, of which there are few', async (context) => {
  const places = TRANSPORT.longHeads;
  TRANSPORT.longHeads = 0;
  context.after(() => {
    TRANSPORT.longHeads = places;
  });
  const { caller, events } = await connectTo(context, {});
  const refused = once(events, 'refused');
  caller.write(`CONNECT 127.0.0.1:1 HTTP/1.1\r\nX: ${'x'.repeat(20_000)}`);
  assert.match(await text(caller), /^HTTP\/1\.1 503 .*too many such heads/);
  await refused;
  caller.end();
});

test('a defect while a long head is served costs neither its place nor a second answer', async () => {
  using _ = changed(TRANSPORT, { longHeads: 1, requestHeadMs: 20 });
  const refused: string[] = [];
  const accept = requests({
    serve: () => assert.fail('a defect'),
    refuse(_, { message }) {
      refused.push(message);
      throw new Error('a defect of its refusal');
    },
    fault(_, error) {
      throw error;
    },
  });
  const begin = () => {
    const socket = new net.Socket();
    accept(new SocketEnd(socket), Buffer.from(`CONNECT a:1 HTTP/1.1\r\nX: ${'x'.repeat(20_000)}`));
    return socket;
  };
  for (let n = 0; n < 2; n++) {
    const socket = begin();
    assert.throws(() => socket.emit('data', Buffer.from('\r\n\r\n')), /a defect of its refusal/);
    socket.destroy();
  }
  await new Promise((resolve) => setTimeout(resolve, 3 * TRANSPORT.requestHeadMs));
  assert.deepEqual(refused, ['a defect', 'a defect']);
});
