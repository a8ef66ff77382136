import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import net, { type Socket } from 'node:net';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { Client, credentials, status } from '@grpc/grpc-js';
import type { Packet } from '@isthmus/proto';
import { until } from '@isthmus/runtime/testing';
import { DialError, type DialRequest, NotAuthorised, type TunnelOutcome, toldOf } from '@isthmus/tunnel';
import { streamOf } from '@isthmus/tunnel/testing';
import { TRANSPORT } from '../defaults.ts';
import { RequestRefused } from '../http1.ts';
import { anyoneOf, type ConnectionPeer } from '../listen.ts';
import { PROXY_METHOD } from '../packets/mux.ts';
import { cleanups } from '../testing/cleanups.ts';
import { connect as connectTo, data, message, open } from './testing/calls.ts';
import { caller, callMethod, destination, echo, ended, gateway, pings, request, socketPath } from './testing/plane.ts';

for (const [where, path] of [
  ['TCP', () => undefined],
  ['a unix socket', socketPath],
] as const) {
  test(`a caller dials over ${where} and its stream ends with its tunnel`, async () => {
    const { target, dialled, server } = await gateway({}, path());
    const client = await caller(target);
    const { end } = await client.dial(request(await destination(echo)));
    assert.equal(dialled[0]?.caller?.via, 'grpc');
    const from = path() === undefined ? /^127\.0\.0\.1:/ : /^uds$/;
    assert.match(dialled[0]?.caller?.identity ?? '', from);
    assert.match(dialled[0]?.caller?.remote ?? '', from);
    streamOf(end).write('x'.repeat(25));
    assert.equal(String((await once(streamOf(end), 'data'))[0]).length, 25);
    streamOf(end).resume().end();
    await until(() => client.open === 0, 'tunnel gone');
    assert.match((await client.closed).message, /closed its stream/);
    await until(() => server.connections === 0, 'connection gone');
  });
}

test('a gateway hands on the words of a failed dial and ends the stream', async () => {
  const { target, server } = await gateway({
    dial: async () => {
      throw new DialError('destination_unavailable', 'No agent available');
    },
  });
  const client = await caller(target);
  await assert.rejects(client.dial(request({ host: 'h', port: 1 })), { message: 'No agent available' });
  await client.closed;
  await until(() => server.connections === 0, 'connection gone');
});

test('a caller that cancels while its dial is pending aborts it', async () => {
  const pending = Promise.withResolvers<DialRequest>();
  const { target, events } = await gateway({
    dial: (dialled) => {
      pending.resolve(dialled);
      return new Promise((_resolve, reject) => dialled.signal.addEventListener('abort', () => reject(new Error('x'))));
    },
  });
  const closed = once(events, 'caller:close');
  const call = callMethod(target, PROXY_METHOD);
  call.on('error', () => {});
  call.write({ type: 'DIAL_REQ', protocol: 'tcp', address: 'h:1', random: 1n });
  const { signal } = await pending.promise;
  call.write({ type: 'DIAL_CLS', random: 1n });
  call.cancel();
  await closed;
  assert.equal(signal.aborted, true);
});

test('a connection that is no HTTP/2 is refused, and one that ends without GOAWAY leaves nothing', async () => {
  const { target, server, events } = await gateway();
  const [host, port] = target.split(':') as [string, string];
  const refused = once(events, 'refused');
  const garbage = net.connect(Number(port), host).on('error', () => {});
  garbage.write('PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n');
  await refused;
  await until(() => server.connections === 0, 'garbage is gone');
  const silent = net.connect({ port: Number(port), host, allowHalfOpen: true }).on('error', () => {});
  cleanups.push(() => silent.destroy());
  silent
    .resume()
    .write(Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0])]));
  await once(silent, 'data');
  assert.equal(server.connections, 1);
  silent.end();
  await until(() => server.connections === 0, 'connection gone');
});

test('bytes that are no packet end their stream with a clear status', async () => {
  const { target } = await gateway();
  const client = new Client(target, credentials.createInsecure());
  const call = client.makeBidiStreamRequest(
    PROXY_METHOD,
    (bytes: Buffer) => bytes,
    (bytes: Buffer) => bytes,
  );
  call.on('data', () => {});
  call.write(Buffer.from([0x22, 0xff, 0xff]));
  const error = await ended(call);
  client.close();
  assert.equal(error.code, status.INVALID_ARGUMENT);
  assert.match(error.details, /bad packet/);
});

test('4 MiB of data in one packet pass, more end the stream', async () => {
  const { target } = await gateway();
  let received = 0;
  const far = await destination((socket) => {
    socket.on('data', (chunk) => {
      received += chunk.length;
    });
  });
  const call = callMethod(target, PROXY_METHOD);
  const packets: Packet[] = [];
  call.on('data', (packet: Packet) => packets.push(packet));
  call.on('error', () => {});
  call.write({ type: 'DIAL_REQ', protocol: 'tcp', address: `${far.host}:${far.port}`, random: 1n });
  await until(() => packets.length === 1, 'tunnel');
  const data = Buffer.alloc(4 * 1024 * 1024);
  call.write({ type: 'DATA', connectID: 1n, error: '', data });
  await until(() => received === data.length, 'data there');
  const end = ended(call);
  call.write({ type: 'DATA', connectID: 1n, error: '', data: Buffer.alloc(5 * 1024 * 1024) });
  assert.equal((await end).code, status.RESOURCE_EXHAUSTED);
});

test('a caller that does not read stops its destination, and nothing is lost when it reads on', async () => {
  const { target } = await gateway();
  const size = 32 * 1024 * 1024;
  const source = Promise.withResolvers<Socket>();
  const far = await destination((socket) => {
    source.resolve(socket);
    socket.end(Buffer.alloc(size, 'x'));
  });
  const call = callMethod(target, PROXY_METHOD);
  call.on('error', () => {});
  call.write({ type: 'DIAL_REQ', protocol: 'tcp', address: `${far.host}:${far.port}`, random: 1n });
  await once(call, 'readable');
  const other = await (await caller(target)).dial(request(await destination(echo)));
  await pings(streamOf(other.end), 200);
  assert.ok((await source.promise).writableLength > 0, 'the destination waits');
  other.end.abort(new Error('over'));
  const got: Packet[] = [];
  call.on('data', (packet: Packet) => got.push(packet));
  await once(call, 'end');
  const bytes = got.reduce((sum, packet) => sum + (packet.type === 'DATA' ? packet.data.length : 0), 0);
  assert.equal(bytes, size);
  assert.deepEqual(got.at(-1), { type: 'CLOSE_RSP', connectID: 1n, error: '' });
});

test('a caller that rests before the last bytes of an ended tunnel gets them when it reads on', async (context) => {
  const { target } = await gateway();
  // A little more than a caller that rests has room for: its window, and what Node reads ahead.
  const size = 128 * 1024;
  const source = Promise.withResolvers<Socket>();
  const far = await destination((socket) => {
    source.resolve(socket);
    socket.end(Buffer.alloc(size, 'x'));
  });
  context.mock.timers.enable({ apis: ['setTimeout'] });
  const { stream, head, packets, status } = open(connectTo(Number(target.split(':').at(-1))), {
    ':path': PROXY_METHOD,
  });
  const closed = once(stream, 'close');
  stream.pause();
  stream.write(message({ type: 'DIAL_REQ', protocol: 'tcp', address: `${far.host}:${far.port}`, random: 1n }));
  await head;
  const socket = await source.promise;
  if (!socket.writableFinished) await once(socket, 'finish');
  for (let turns = 0; turns < 200; turns++) await setImmediate();
  for (let seconds = 0; seconds < 60; seconds++) {
    context.mock.timers.tick(1000);
    await setImmediate();
  }
  context.mock.timers.reset();
  stream.resume();
  await closed;
  const bytes = packets.reduce((sum, packet) => sum + (packet.type === 'DATA' ? packet.data.length : 0), 0);
  assert.equal(bytes, size);
  assert.deepEqual(packets.at(-1), { type: 'CLOSE_RSP', connectID: 1n, error: '' });
  assert.equal((await status)['grpc-status'], '0');
});

test('a caller that dials nothing is told so, and one that has dialled has all the time it wants', async (context) => {
  const usual = TRANSPORT.firstDialMs;
  context.after(() => {
    TRANSPORT.firstDialMs = usual;
  });
  TRANSPORT.firstDialMs = 500;
  const { target, events } = await gateway();
  const dialled = await (await caller(target)).dial(request(await destination(echo)));
  const refused = once(events, 'refused');
  const idle = callMethod(target, PROXY_METHOD);
  idle.on('data', () => {});
  const shown = await ended(idle);
  assert.equal(shown.code, status.ABORTED);
  assert.match(shown.details, /no dial within 0.5 s/);
  assert.equal((await refused)[0], 'callers');
  await pings(streamOf(dialled.end), 1);
  dialled.end.abort(new Error('over'));
});

test('an upload that its caller breaks off amid a message does not end in good order at the destination', async () => {
  const { target, events } = await gateway();
  const errors: string[] = [];
  events.on('packet:error', (_role, code) => errors.push(code));
  const came = Promise.withResolvers<Socket>();
  const far = await destination((socket) => came.resolve(socket));
  const closed = once(events, 'tunnel:close');
  const { stream, head } = open(connectTo(Number(target.split(':').at(-1))), { ':path': PROXY_METHOD });
  const address = `${far.host}:${far.port}`;
  stream.write(message({ type: 'DIAL_REQ', protocol: 'tcp', address, random: 7n }));
  await head;
  const upload = message(data(1n, Buffer.alloc(200_000)));
  stream.write(upload.subarray(0, 50_000));
  const socket = await came.promise;
  let ended = false;
  let got = 0;
  socket
    .on('data', (bytes) => {
      got += bytes.length;
    })
    .on('end', () => {
      ended = true;
    });
  // A destination that has bytes to read when its connection is reset would see an end: libuv says so then.
  const begun = 50_000 - (upload.length - 200_000);
  await until(() => got > begun - 4096, 'the destination has each whole part of it');
  stream.end();
  await until(() => ended || socket.destroyed, 'the destination hears of it');
  assert.equal(ended, false);
  const [, { by, error }] = (await closed) as [unknown, TunnelOutcome];
  assert.equal(by, 'caller');
  assert.match(error?.message ?? '', /in the middle of a message/);
  assert.deepEqual(errors, ['Internal']);
});

test('a caller that may not dial reads why, on a connection that goes on', async () => {
  let known = false;
  const stranger = new NotAuthorised('nobody here is known by this port', { rule: 'acme.yaml: callers' });
  const { target, events, dialled } = await gateway({
    identifyCaller: (peer) => (known ? anyoneOf('acme')(peer) : stranger),
  });
  const refused = once(events, 'refused');
  const { host, port } = await destination(echo);
  const session = connectTo(Number(target.split(':').at(-1)));
  const dial = () => {
    const reply = open(session, { ':path': PROXY_METHOD });
    reply.stream.write(message({ type: 'DIAL_REQ', protocol: 'tcp', address: `${host}:${port}`, random: 7n }));
    return reply;
  };
  const { packets, status: ending } = dial();
  await ending;
  assert.deepEqual(packets, [{ type: 'DIAL_RSP', error: toldOf(stranger), connectID: 0n, random: 7n }]);
  const [where, , error] = (await refused) as [string, string, NotAuthorised];
  assert.deepEqual([where, error.rule, error.destination], ['callers', 'acme.yaml: callers', `${host}:${port}`]);
  assert.equal(dialled.length, 0);
  known = true;
  const served = dial();
  await until(() => served.packets.length === 1, 'the answer');
  assert.equal(dialled[0]?.tenant, 'acme');
});

test('a caller shows its token in authorization, and reads what is wrong with it', async () => {
  const cancels: (() => void)[] = [];
  const { target, events, dialled } = await gateway(
    {
      identifyCaller: () => new NotAuthorised('show a token', { challenge: true }),
      async identifyByToken({ remote }, { tenant, token }, signal) {
        if (token.startsWith('late')) {
          cancels.shift()?.();
          await once(signal, 'abort');
        }
        const cause = new NotAuthorised('the token is wrong');
        if (token.endsWith('one of many')) throw new RequestRefused(429, 'try again later', { cause });
        if (token !== 'good') throw cause;
        return { tenant: tenant ?? 'acme', caller: { identity: remote, remote } };
      },
    },
    socketPath(),
  );
  const refused: string[] = [];
  events.on('refused', (_where, _remote, { message }) => refused.push(message));
  const { host, port } = await destination(echo);
  const dial = async (authorization?: string) =>
    (await caller(target, authorization === undefined ? {} : { authorization })).dial(request({ host, port }));
  const { end } = await dial('Bearer good');
  await pings(streamOf(end), 2);
  const basic = (text: string) => `Basic ${Buffer.from(text).toString('base64')}`;
  streamOf((await dial(basic('beta:good'))).end).destroy();
  assert.deepEqual(
    dialled.map(({ tenant }) => tenant),
    ['acme', 'beta'],
  );
  await assert.rejects(dial(), /not authorised/);
  await assert.rejects(dial(basic('acme:wrong')), /not authorised/);
  await assert.rejects(dial('Basic acme:secret'), /not the base64/);
  await assert.rejects(dial('Negotiate secret'), /scheme that is not served/);
  assert.equal(refused.length, 4);
  assert.doesNotMatch(refused.join(), /secret|good/);
  streamOf(end).destroy();

  // A connection that goes on guessing serves no more, whether its calls never dial or are cancelled before the verdict.
  const at = target.replace('unix://', '');
  for (const token of ['wrong', 'late', 'one of many', 'late, one of many']) {
    cancels.length = 0;
    refused.length = 0;
    const session = http2.connect('http://gateway', { createConnection: () => net.connect(at) });
    const goaway = once(session, 'goaway');
    for (let time = 0; time < TRANSPORT.challenges; time++) {
      const { stream } = open(session, { ':path': PROXY_METHOD, authorization: basic(`acme:${token}`) });
      stream.on('error', () => {});
      cancels.push(() => stream.close(http2.constants.NGHTTP2_CANCEL));
    }
    assert.equal((await goaway)[0], http2.constants.NGHTTP2_NO_ERROR);
    session.destroy();
    await until(() => refused.length === TRANSPORT.challenges, 'a record of each');
    assert.deepEqual(new Set(refused), new Set(['the token is wrong']));
  }
});

test('a connection whose caller may dial no more ends with its tunnels, and tells why', async () => {
  const peers = new Set<ConnectionPeer>();
  const { target, events, server } = await gateway({
    identifyCaller(peer) {
      peers.add(peer);
      return anyoneOf('acme')(peer);
    },
  });
  const { host, port } = await destination(echo);
  const session = connectTo(Number(target.split(':').at(-1)));
  const left = once(session, 'goaway');
  for (const random of [1n, 2n]) {
    const { stream, packets } = open(session, { ':path': PROXY_METHOD });
    stream.write(message({ type: 'DIAL_REQ', protocol: 'tcp', address: `${host}:${port}`, random }));
    await until(() => packets.length === 1, 'a tunnel');
  }
  const outcomes: TunnelOutcome[] = [];
  events.on('tunnel:close', (_tunnel, outcome) => outcomes.push(outcome));
  assert.equal(peers.size, 1, 'one connection has one peer');
  for (const peer of peers) peer.end(new Error('its certificate was revoked'));
  await left;
  await until(() => outcomes.length === 2 && server.connections === 0, 'everything is closed');
  for (const { by, error } of outcomes)
    assert.deepEqual([by, error?.message], ['credential', 'its certificate was revoked']);
});

/** A stream at a gateway whose destination the test holds. */
async function streamAt(options: Parameters<typeof gateway>[0] = {}) {
  const came = Promise.withResolvers<Socket>();
  const far = await destination((socket) => came.resolve(socket));
  const at = await gateway(options);
  const reply = open(connectTo(Number(at.target.split(':').at(-1))), { ':path': PROXY_METHOD });
  const send = (...packets: Packet[]) => reply.stream.write(Buffer.concat(packets.map((packet) => message(packet))));
  const dial = (random: bigint): Packet => ({
    ...{ type: 'DIAL_REQ', protocol: 'tcp', address: `${far.host}:${far.port}`, random },
  });
  return { ...at, ...reply, send, dial, came: came.promise };
}

test('a caller’s stream carries one tunnel: another dial on it is refused and the first goes on', async () => {
  const { send, dial, packets, dialled, came } = await streamAt();
  send(dial(5n), dial(5n), dial(6n));
  await until(() => packets.length === 2, 'two answers');
  assert.equal(dialled.length, 1);
  const refusal = packets.find((packet) => packet.type === 'DIAL_RSP' && packet.random === 6n);
  assert.match((refusal as { error: string }).error, /one tunnel only/);
  send(data(1n, Buffer.from('still here')));
  assert.equal(String((await once(await came, 'data'))[0]), 'still here');
});

const BAD_DIALS: [protocol: string, address: string, error: RegExp][] = [
  ['tcp', '', /bad destination ""/],
  ['tcp', 'no-port', /bad destination "no-port"/],
  ['udp', 'h:53', /unknown network/],
];

for (const [protocol, address, error] of BAD_DIALS) {
  test(`a caller’s dial of ${protocol} "${address}" is refused and its stream ends`, async () => {
    const { send, packets, status: ending } = await streamAt();
    send({ type: 'DIAL_REQ', protocol, address, random: 5n });
    assert.equal((await ending)['grpc-status'], '0');
    assert.equal(packets.length, 1);
    assert.match((packets[0] as { error: string }).error, error);
  });
}

test('of a dial for a network with a long name only the beginning is told', async () => {
  const { send, packets, status: ending } = await streamAt();
  send({ type: 'DIAL_REQ', protocol: 'u'.repeat(7000), address: 'h'.repeat(7000), random: 5n });
  assert.equal((await ending)['grpc-status'], '0');
  const [{ error } = { error: '' }] = packets as { error: string }[];
  assert.match(error, /^dial u{200} h{200}: unknown network, want tcp$/);
});

test('a caller that closes gets CLOSE_RSP and then the end of its stream, and each packet is told of', async () => {
  const { send, dial, packets, status: ending, events, came } = await streamAt();
  const passed: string[] = [];
  events.on('packet', (...packet) => passed.push(packet.join(' ')));
  const closed = once(events, 'tunnel:close');
  send(dial(5n));
  await until(() => packets.length === 1, 'tunnel');
  (await came).resume();
  send({ type: 'CLOSE_REQ', connectID: 1n });
  assert.equal((await ending)['grpc-status'], '0');
  assert.deepEqual(packets.slice(1), [{ type: 'CLOSE_RSP', connectID: 1n, error: '' }]);
  const [, { how, by, error }] = (await closed) as [unknown, TunnelOutcome];
  assert.deepEqual([how, by, error], ['closed', 'caller', undefined]);
  const gateway = (direction: string) => passed.filter((packet) => packet.startsWith(`gateway ${direction} `));
  assert.deepEqual(gateway('received'), ['gateway received DIAL_REQ', 'gateway received CLOSE_REQ']);
  assert.deepEqual(gateway('sent'), ['gateway sent DIAL_RSP', 'gateway sent CLOSE_RSP']);
});

test('a DIAL_CLS that crosses the DIAL_RSP ends the tunnel', async () => {
  const { send, dial, packets, status: ending, came } = await streamAt();
  send(dial(5n));
  await until(() => packets.length === 1, 'tunnel');
  send({ type: 'DIAL_CLS', random: 6n }, { type: 'DIAL_CLS', random: 5n });
  await ending;
  assert.deepEqual(packets[1], { type: 'CLOSE_RSP', connectID: 1n, error: 'caller gave up its dial' });
  const socket = await came;
  await until(() => socket.destroyed, 'the destination hears of it');
});

test('packets of tunnels that a caller does not have are answered once for each, before its dial and beside its tunnel', async () => {
  const { send, dial, packets, came } = await streamAt();
  const of = (connectID: bigint) => data(connectID, Buffer.from('x'));
  const close = (connectID: bigint): Packet => ({ type: 'CLOSE_REQ', connectID });
  send(of(1n), of(1n), of(0n), close(7n), of(7n), dial(5n));
  await until(() => packets.length === 3, 'answers');
  send(of(9n), of(9n), of(1n));
  assert.equal(String((await once(await came, 'data'))[0]), 'x');
  await until(() => packets.length === 4, 'one more');
  const errors = packets.flatMap((packet) => (packet.type === 'CLOSE_RSP' ? [[packet.connectID, packet.error]] : []));
  assert.deepEqual(errors, [
    [1n, 'unrecognized connectID'],
    [7n, 'Unknown connectID'],
    [9n, 'unrecognized connectID'],
  ]);
});

test('a caller that floods a gateway with packets of no tunnel, and reads nothing, is answered no more', async () => {
  const { stream, send, dial, packets, came } = await streamAt();
  send(dial(5n));
  await until(() => packets.length === 1, 'tunnel');
  stream.pause();
  for (let id = 100n; id < 60_100n; id += 1000n)
    send(...Array.from({ length: 1000 }, (_, more) => data(id + BigInt(more), Buffer.from('x'))));
  send(data(1n, Buffer.from('there')));
  // Its own tunnel goes on.
  assert.equal(String((await once(await came, 'data'))[0]), 'there');
  stream.resume();
  send({ type: 'CLOSE_REQ', connectID: 1n });
  await until(() => packets.some((packet) => packet.type === 'CLOSE_RSP' && packet.connectID === 1n), 'its end');
  assert.ok(packets.length < 20_000, `${packets.length} packets`);
});

test('a caller’s stream that breaks while it dials aborts the dial', async () => {
  const pending = Promise.withResolvers<DialRequest>();
  const dial = (dialled: DialRequest) => {
    pending.resolve(dialled);
    return new Promise<never>(() => {});
  };
  const { stream, send, dial: request } = await streamAt({ dial });
  send(request(5n));
  const { signal } = await pending.promise;
  stream.close(http2.constants.NGHTTP2_CANCEL);
  await until(() => signal.aborted, 'it is told');
  assert.match(signal.reason.message, /caller went away/);
});

test('a slow destination holds its caller, and nothing is lost', async () => {
  const { send, dial, packets, status: ending, events, came } = await streamAt();
  const told: string[] = [];
  events.on('receive:full', (role) => told.push(`full ${role}`));
  events.on('receive:free', (role) => told.push(`free ${role}`));
  send(dial(5n));
  await until(() => packets.length === 1, 'tunnel');
  const socket = (await came).pause();
  const chunk = Buffer.alloc(64 * 1024, 'x');
  const sent = 32 * 1024 * 1024;
  for (let at = 0; at < sent; at += chunk.length) send(data(1n, chunk));
  send({ type: 'CLOSE_REQ', connectID: 1n });
  await until(() => told.length > 0, 'it is held');
  assert.equal(told[0], 'full gateway');
  let received = 0;
  socket
    .on('data', ({ length }) => {
      received += length;
    })
    .resume();
  await once(socket, 'end');
  assert.equal(received, sent);
  assert.equal((await ending)['grpc-status'], '0');
  assert.deepEqual([told.length % 2, told.at(-1)], [0, 'free gateway']);
});
