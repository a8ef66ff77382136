import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import http2, { type ClientHttp2Session, type ClientHttp2Stream, type IncomingHttpHeaders } from 'node:http2';
import net, { type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { test } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import { DialError, NotAuthorised, PlaneEnded, planeEvents, type TunnelOutcome } from '@isthmus/tunnel';
import { ErrorCode } from '@isthmus/wire';
import type { CallerEdgeOptions } from './connect.ts';
import { connectStreams } from './connect-streams.ts';
import { TRANSPORT } from './defaults.ts';
import { GrpcServer, type GrpcServerOptions } from './grpc/server.ts';
import { socketPath } from './grpc/testing/plane.ts';
import { dialTcp, listen } from './link/testing.ts';
import { destination, established } from './packets/testing.ts';
import { RequestRefused } from './proxy-authorization.ts';
import { cleanups } from './testing/cleanups.ts';
import { anyoneOf, type ConnectionPeer } from './tls/certificate.ts';

/** A caller's connection to an edge that dials as an agent does, unless the options say otherwise. */
async function callerOf(options: Partial<CallerEdgeOptions> = {}, serving: Partial<GrpcServerOptions> = {}) {
  const events = planeEvents();
  const edge = { dial: dialTcp, identifyCaller: anyoneOf('default'), events, timeout: 60_000, ...options };
  const server = new GrpcServer({
    services: [],
    connect: connectStreams(edge),
    events,
    name: 'callers',
    keepaliveMs: 60_000,
    streamWindow: TRANSPORT.callerWindowBytes,
    ...serving,
  });
  // On a unix socket, where tokens may be shown without TLS.
  const path = socketPath();
  const listener = net.createServer({ allowHalfOpen: true }, (socket) => server.accept(socket)).listen(path);
  await once(listener, 'listening');
  const long = { maxSendHeaderBlockLength: 1_000_000 };
  const session = http2.connect('http://gateway', { createConnection: () => net.connect(path), ...long });
  session.on('error', () => {});
  cleanups.push(() => {
    session.destroy();
    listener.close();
    return server.close(0);
  });
  const refused: string[] = [];
  events.on('refused', (where, _remote, { message }) => refused.push(`${where}: ${message}`));
  const closed: TunnelOutcome[] = [];
  events.on('tunnel:close', (_tunnel, outcome) => closed.push(outcome));
  let open = 0;
  events.on('caller:open', () => open++);
  events.on('caller:close', () => open--);
  return { server, session, events, refused, closed, open: () => open };
}

async function ask(session: ClientHttp2Session, port: number | string, fields: Record<string, string> = {}) {
  const authority = typeof port === 'string' ? port : `127.0.0.1:${port}`;
  const stream = session.request({ ':method': 'CONNECT', ':authority': authority, ...fields }, { endStream: false });
  stream.on('error', () => {});
  const [head] = (await once(stream, 'response')) as [IncomingHttpHeaders & { ':status': number }];
  return { stream, head, status: head[':status'] };
}

/** Resolves with the code of its end, and whether its data ended in order. */
async function endOf(stream: ClientHttp2Stream): Promise<readonly [code: number, ended: boolean]> {
  let ended = false;
  stream.once('end', () => {
    ended = true;
  });
  stream.resume();
  // Its error is its code.
  if (!stream.destroyed) await new Promise((resolve) => stream.once('close', resolve));
  return [stream.rstCode, ended];
}

const serve = (handle: (socket: Socket) => void) => listen(net.createServer({ allowHalfOpen: true }, handle));

test('a stream carries bytes both ways and each half-close, and the destination may end first', async () => {
  const { session, open } = await callerOf();
  const hashes = await serve((socket) => {
    const hash = createHash('sha256');
    socket.on('data', (chunk) => hash.update(chunk));
    socket.once('end', () => socket.end(hash.digest()));
  });
  const bytes = randomBytes(3_000_000);
  const up = await ask(session, hashes);
  assert.equal(up.status, 200);
  up.stream.end(bytes);
  const [digest] = (await once(up.stream, 'data')) as [Buffer];
  assert.deepEqual(digest, createHash('sha256').update(bytes).digest());
  await endOf(up.stream);

  const said: Buffer[] = [];
  const firstToEnd = await serve((socket) => socket.on('data', (chunk) => said.push(chunk)).end('that is all'));
  const down = await ask(session, firstToEnd);
  await once(down.stream.resume(), 'end');
  assert.equal(down.stream.closed, false, 'the caller may still send');
  down.stream.end('thanks');
  assert.deepEqual(await endOf(down.stream), [ErrorCode.NO_ERROR, false]);
  await until(() => `${Buffer.concat(said)}` === 'thanks', 'what the caller sent after the end');
  await until(() => open() === 0, 'the end of both streams');
});

test('a cut resets its stream alone, and a reset by the caller cuts its tunnel alone', async () => {
  const { session, closed } = await callerOf();
  const sockets: Socket[] = [];
  const port = await serve((socket) => sockets.push(socket.on('error', () => {}).resume()));
  const streams = [];
  for (let index = 0; index < 4; index++) {
    streams.push((await ask(session, port)).stream);
    await until(() => sockets.length > index, 'its connection');
  }
  const [byDestination, byCaller, , stays] = streams as [
    ClientHttp2Stream,
    ClientHttp2Stream,
    unknown,
    ClientHttp2Stream,
  ];
  const cut = endOf(byDestination);
  sockets[0]?.resetAndDestroy();
  assert.deepEqual(await cut, [ErrorCode.CONNECT_ERROR, false]);
  byCaller.close(http2.constants.NGHTTP2_CANCEL);
  await until(() => closed.length === 2, 'the end of two tunnels');
  assert.deepEqual(
    closed.map(({ by }) => by),
    ['destination', 'caller'],
  );
  sockets[3]?.write('still here');
  assert.equal(`${(await once(stays, 'data'))[0]}`, 'still here');
  // The caller's connection ends all that are left.
  session.destroy();
  await until(() => closed.length === 4, 'the end of all tunnels');
});

test('a cut by the plane resets the stream, and a caller that may dial no more loses its connection', async () => {
  const nears: Duplex[] = [];
  let peer: ConnectionPeer | undefined;
  const caller = await callerOf({
    dial: async () => {
      const { near } = destination();
      nears.push(near);
      return established(near);
    },
    identifyCaller(of) {
      peer = of;
      return anyoneOf('acme')(of);
    },
  });
  const { stream } = await ask(caller.session, 1);
  const end = endOf(stream);
  nears[0]?.destroy(new PlaneEnded('an operator kicked its agent', { by: 'agent' }));
  assert.deepEqual(await end, [ErrorCode.CONNECT_ERROR, false]);
  assert.equal(caller.closed[0]?.by, 'agent');
  const next = await ask(caller.session, 1);
  const [failed, [code, , said]] = await Promise.all([
    once(next.stream, 'error'),
    once(caller.session, 'goaway'),
    Promise.resolve().then(() => peer?.end(new Error('its certificate was revoked'))),
  ]);
  assert.ok(failed, 'nobody takes half an answer for a whole one');
  assert.deepEqual([code, `${said}`], [ErrorCode.CANCEL, 'its certificate was revoked']);
});

test('who does not read holds up its own stream only', async () => {
  const { session } = await callerOf();
  const floods = await serve((socket) => {
    socket.on('error', () => {});
    const more = () => {
      while (socket.write(Buffer.alloc(65_536)));
    };
    socket.on('drain', more);
    more();
  });
  const echoes = await serve((socket) => void socket.pipe(socket));
  const slow = await ask(session, floods);
  slow.stream.pause();
  const { stream } = await ask(session, echoes);
  for (let round = 0; round < 20; round++) {
    stream.write('ping');
    assert.equal(`${(await once(stream, 'data'))[0]}`, 'ping');
  }
});

test('a dial that fails is answered with its status and why, and leaves nothing open', async () => {
  const reason = new DialError('destination_unavailable', 'No agent "a" available', { retryable: true });
  const { session, open, refused } = await callerOf({ dial: () => Promise.reject(reason) });
  const { stream, head, status } = await ask(session, 1);
  assert.equal(status, 503);
  assert.equal(head['proxy-status'], 'isthmus; error=destination_unavailable; details="No agent \\"a\\" available"');
  assert.deepEqual([head['retry-after'], head['isthmus-retryable']], ['1', '?1']);
  assert.equal((await endOf(stream))[0], ErrorCode.NO_ERROR);
  await until(() => open() === 0, 'the end of the stream');
  assert.deepEqual(refused, []);
});

test('a dial whose caller goes away is aborted', async () => {
  let aborted = '';
  const { session, open } = await callerOf({
    dial: ({ signal }) =>
      new Promise((_resolve, reject) =>
        signal.addEventListener('abort', () => {
          aborted = signal.reason.message;
          reject(signal.reason);
        }),
      ),
  });
  const stream = session.request({ ':method': 'CONNECT', ':authority': '127.0.0.1:1' }, { endStream: false });
  stream.on('error', () => {});
  await until(() => open() === 1, 'the dial');
  stream.close(http2.constants.NGHTTP2_CANCEL);
  await until(() => open() === 0, 'its end');
  assert.equal(aborted, 'the caller went away');
});

const basic = (user: string, token: string) => ({
  'proxy-authorization': `Basic ${Buffer.from(`${user}:${token}`).toString('base64')}`,
});

/** A caller at an edge that knows the token `good`, and takes no certificates. By gRPC it knows everyone. */
function tokenCaller(options: Partial<CallerEdgeOptions> = {}) {
  return callerOf(
    {
      identifyCaller: () => new NotAuthorised('show a token', { challenge: true }),
      async identifyByToken({ remote }, { token }) {
        if (token === 'busy') throw new RequestRefused(429, 'try again later');
        const cause = new NotAuthorised('the token is wrong');
        if (token === 'one of many') throw new RequestRefused(429, 'try again later', { cause });
        if (token !== 'good') throw cause;
        return { tenant: 'acme', caller: { identity: remote, remote } };
      },
      ...options,
    },
    {
      unproven: { streamWindow: 4096, maxStreams: 1 },
      maxFields: TRANSPORT.callerFieldsBytes,
      services: [{ path: '/grpc', serve: (_call, admit) => admit() }],
    },
  );
}

test('a caller without a token is asked for one, and the token makes it one with many streams', async () => {
  const { session, refused } = await tokenCaller();
  const port = await serve((socket) => void socket.pipe(socket));
  const challenge = await ask(session, port);
  assert.equal(challenge.status, 407);
  assert.equal(challenge.head['proxy-authenticate'], 'Basic realm="isthmus", charset="UTF-8", Bearer realm="isthmus"');
  assert.match(challenge.head['proxy-status'] as string, /details="show a token"$/);
  assert.equal((await endOf(challenge.stream))[0], ErrorCode.NO_ERROR);
  assert.equal(session.remoteSettings.maxConcurrentStreams, 1);
  const wider = once(session, 'remoteSettings');
  const first = await ask(session, port, basic('acme', 'good'));
  assert.equal(first.status, 200);
  await wider;
  assert.equal(session.remoteSettings.maxConcurrentStreams, TRANSPORT.grpcStreams);
  // A known caller's tunnels outlive its wrong tokens. Its connection serves no more.
  const goaway = once(session, 'goaway');
  for (let time = 1; time < TRANSPORT.challenges; time++)
    assert.equal((await ask(session, port, basic('acme', 'wrong'))).status, 407);
  assert.equal((await goaway)[0], ErrorCode.NO_ERROR);
  first.stream.write('still here');
  assert.equal(`${(await once(first.stream, 'data'))[0]}`, 'still here');
  assert.equal(session.destroyed, false);
  const over = once(session, 'close');
  first.stream.end();
  await over;
  assert.equal(refused[0], 'http-connect: show a token');
  assert.equal(refused.length, TRANSPORT.challenges);
});

const refusals: [why: string, status: number, target: string, fields: object, options?: Partial<CallerEdgeOptions>][] =
  [
    ['without a token', 407, 'a:1', {}],
    ['with a wrong token', 407, 'a:1', basic('acme', 'wrong')],
    ['for no destination', 400, 'a b:1', {}],
    ['without a certificate', 403, 'a:1', {}, { identifyCaller: () => new NotAuthorised('show a certificate') }],
    ['while too many guess', 429, 'a:1', basic('acme', 'busy')],
  ];
for (const [why, wanted, target, fields, options] of refusals) {
  test(`a stranger who goes on asking ${why} is let go`, async () => {
    const { session } = await tokenCaller(options);
    const closed = new Promise((resolve) => session.once('close', resolve));
    for (let time = 0; time < TRANSPORT.challenges; time++) {
      const { stream, status } = await ask(session, target, { ...fields });
      assert.equal(status, wanted);
      await endOf(stream);
    }
    await closed;
  });
}

test('wrong tokens of a caller that is known by gRPC cost its connection, and none of its calls', async () => {
  const { session, refused } = await tokenCaller();
  const fields = { ':method': 'POST', ':path': '/grpc', 'content-type': 'application/grpc', te: 'trailers' };
  const call = session.request(fields, { endStream: false }).on('error', () => {});
  await until(() => session.remoteSettings.maxConcurrentStreams === TRANSPORT.grpcStreams, 'more room');
  const goaway = once(session, 'goaway');
  for (let time = 0; time < TRANSPORT.challenges; time++) {
    const { stream, status } = await ask(session, 1, basic('acme', 'wrong'));
    assert.equal(status, 407);
    await endOf(stream);
  }
  await goaway;
  assert.deepEqual([session.destroyed, call.closed], [false, false]);
  assert.equal(refused.length, TRANSPORT.challenges);
});

const malformed: [name: string, target: string, fields: Record<string, string>, status: number, why: RegExp][] = [
  ['two credentials', 'a:1', { 'proxy-authorization': 'Basic c2VjcmV0, Bearer secret' }, 400, /one scheme/],
  ['Basic that is no base64', 'a:1', { 'proxy-authorization': 'Basic acme:secret' }, 400, /not the base64/],
  ['a target with a password', 'acme:secret@a:1', {}, 400, /names a user/],
  ['a target with a space', 'a b:1', {}, 400, /not HOST:PORT/],
  ['a target without a port', 'a', basic('acme', 'good'), 400, /want host:port/],
];
for (const [name, target, fields, wanted, why] of malformed) {
  test(`${name}: a clear answer, and nothing of it in any text`, async () => {
    const { session, refused } = await tokenCaller();
    const { head, status } = await ask(session, target, fields);
    assert.equal(status, wanted);
    assert.match(head['proxy-status'] as string, why);
    assert.equal(refused.length, 1);
    assert.doesNotMatch(`${head['proxy-status']}${refused}`, /secret|c2Vjc|good/);
  });
}

test('guesses of a known caller that come at once cost it the connection before they are answered', async () => {
  const { session, refused } = await tokenCaller({ dial: async () => established(destination().near) });
  const tunnel = await ask(session, 1, basic('acme', 'good'));
  await until(() => (session.remoteSettings.maxConcurrentStreams ?? 0) >= 5000, 'leave for more streams');
  let answers = 0;
  const ends = Array.from({ length: 5000 }, () => {
    const fields = { ':method': 'CONNECT', ':authority': 'a:1', ...basic('acme', 'wrong') };
    const stream = session.request(fields, { endStream: false }).on('response', () => answers++);
    return new Promise((resolve) => stream.on('error', () => {}).once('close', resolve));
  });
  await Promise.all(ends);
  // As many as are read in a tick of the event loop.
  assert.ok(answers >= TRANSPORT.challenges && answers <= 40, `${answers} answers`);
  assert.equal(refused.length, answers);
  assert.equal(tunnel.stream.closed, false);
});

test('a head of 32 KiB is served, and one that is longer is answered with 431', async () => {
  const port = await serve((socket) => void socket.pipe(socket));
  // A client that does not know the limit.
  const { session, refused } = await tokenCaller();
  const long = (bytes: number) => ({ ...basic('acme', 'good'), 'x-long': 'x'.repeat(bytes) });
  const tunnel = await ask(session, port, long(TRANSPORT.connectHeadBytes - 200));
  assert.equal(tunnel.status, 200);
  const { status, stream } = await ask(session, port, long(TRANSPORT.connectHeadBytes + 8_000));
  assert.equal(status, 431);
  assert.equal((await endOf(stream))[0], ErrorCode.NO_ERROR);
  assert.deepEqual(refused, ["callers: the request's head is longer than 33792 bytes"]);
  // It cost no tunnel, and what follows is understood.
  tunnel.stream.write('still here');
  assert.equal(`${(await once(tunnel.stream, 'data'))[0]}`, 'still here');
  assert.equal((await ask(session, port, basic('acme', 'good'))).status, 200);
  const left = once(session, 'goaway');
  assert.equal((await ask(session, port, long(TRANSPORT.connectHeadBytes + 8_000))).status, 431);
  assert.equal((await ask(session, port, long(TRANSPORT.connectHeadBytes + 8_000))).status, 431);
  assert.equal((await left)[0], ErrorCode.NO_ERROR);
  assert.equal(tunnel.stream.closed, false);
});

test('a head of twice what is served is not read, and ends its connection', async () => {
  const { session, events } = await tokenCaller();
  const why = once(events, 'refused');
  const ended = once(session, 'goaway');
  assert.equal((await ask(session, 1, { 'x-long': '*'.repeat(2 * TRANSPORT.callerFieldsBytes) })).status, 431);
  assert.equal((await ended)[0], ErrorCode.ENHANCE_YOUR_CALM);
  assert.match((await why)[2].message, /a header section of more than 67584 bytes/);
});

test('a known caller keeps its connection while others leave it no room, but not for wrong tokens beyond what may wait', async () => {
  const { session, refused } = await tokenCaller();
  const port = await serve((socket) => void socket.pipe(socket));
  assert.equal((await ask(session, port, basic('acme', 'good'))).status, 200);
  for (let time = 0; time <= TRANSPORT.challenges; time++)
    assert.equal((await ask(session, port, basic('acme', 'busy'))).status, 429);
  assert.equal((await ask(session, port, basic('acme', 'good'))).status, 200);
  refused.length = 0;
  const goaway = once(session, 'goaway');
  for (let time = 0; time < TRANSPORT.challenges; time++)
    assert.equal((await ask(session, port, basic('acme', 'one of many'))).status, 429);
  assert.equal((await goaway)[0], ErrorCode.NO_ERROR);
  assert.deepEqual(refused, Array(TRANSPORT.challenges).fill('http-connect: the token is wrong'));
});

test('resets in quick succession end the connection', async () => {
  const { session, open } = await callerOf({ dial: () => new Promise(() => {}) });
  const closed = new Promise((resolve) => session.once('close', resolve));
  const goaway = new Promise((resolve) => session.once('goaway', resolve));
  // No more: what a closed connection still gets is answered with a TCP reset, which may overtake the GOAWAY.
  for (let index = 0; index <= TRANSPORT.grpcResets; index++) {
    const stream = session.request({ ':method': 'CONNECT', ':authority': 'a:1' }, { endStream: false });
    stream.on('error', () => {}).close(http2.constants.NGHTTP2_CANCEL);
  }
  assert.equal(await goaway, ErrorCode.ENHANCE_YOUR_CALM);
  await closed;
  await until(() => open() === 0, 'the end of all streams');
});

test('a caller may end all its tunnels at once, and others of its connection go on', async () => {
  const { session, closed } = await callerOf({ dial: async () => established(destination().near) });
  const stays = await ask(session, 1);
  const tunnels = await Promise.all(Array.from({ length: TRANSPORT.grpcResets + 1 }, () => ask(session, 1)));
  for (const { stream } of tunnels) stream.close(http2.constants.NGHTTP2_CANCEL);
  await until(() => closed.length === tunnels.length, 'the end of their tunnels');
  assert.equal((await ask(session, 1)).status, 200);
  assert.equal(stays.stream.closed, false);
});
