import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import net, { type Socket } from 'node:net';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { Client, credentials, Metadata, status } from '@grpc/grpc-js';
import type { Packet } from '@isthmus/proto';
import { DEADLINE_MS, until } from '@isthmus/runtime/testing';
import { DialError, type DialRequest, NotAuthorised, SessionLost, type TunnelOutcome, toldOf } from '@isthmus/tunnel';
import { TRANSPORT } from '../defaults.ts';
import { AgentLimitError } from '../identifiers.ts';
import { CONNECT_METHOD, PROXY_METHOD } from '../packets/channel.ts';
import { RequestRefused } from '../proxy-authorization.ts';
import { cleanups } from '../testing/cleanups.ts';
import { anyoneOf, type ConnectionPeer } from '../tls/certificate.ts';
import { connectPackets } from './client.ts';
import { connect as connectTo, data, message, open } from './testing/calls.ts';
import {
  agentAtHub,
  caller,
  callMethod,
  connect,
  connected,
  destination,
  echo,
  ended,
  gateway,
  hub,
  listen,
  pings,
  request,
  socketPath,
} from './testing/plane.ts';

test('an agent of ours carries tunnels of a hub of ours over AgentService', async () => {
  const { client, clients, agents, served, server } = await agentAtHub();
  assert.equal(clients.length, 1);
  assert.equal(agents[0]?.agentId, 'a1');
  assert.match(agents[0]?.peer.remote ?? '', /^127\.0\.0\.1:\d+$/);
  const { end } = await client.dial(request(await destination(echo)));
  end.stream.write('hello');
  assert.equal(String((await once(end.stream, 'data'))[0]), 'hello');
  end.stream.end();
  await until(() => client.open === 0 && served.open === 0, 'tunnel gone');
  served.destroy(new Error('over'));
  await until(() => server.connections === 0, 'connection gone');
  assert.ok((await client.closed) instanceof SessionLost);
});

test('a hub tells its id and count at once and reads the identifiers', async () => {
  const { target, agents } = await hub();
  const link = await connect(target, 'ipv4=10.0.0.1&default-route=true');
  cleanups.push(() => link.channel.destroy(new Error('over')));
  assert.deepEqual([link.serverId, link.serverCount], ['h1', 3]);
  assert.deepEqual(agents[0]?.identifiers, { ipv4: ['10.0.0.1'], ipv6: [], host: [], cidr: [], defaultRoute: true });
});

const BAD_AGENTS: [what: string, metadata: Record<string, string | string[]>, code: status, details: RegExp][] = [
  ['no id', {}, status.INVALID_ARGUMENT, /expected one agent ID in the context, got \[\]/],
  ['two ids', { agentid: ['a', 'b'] }, status.INVALID_ARGUMENT, /expected one agent ID in the context, got \[a b\]/],
  [
    'the id of none',
    { agentid: 'direct' },
    status.INVALID_ARGUMENT,
    /agent ID "direct" is taken: .* another --agent-id/,
  ],
  [
    'two sets of identifiers',
    { agentid: 'a', agentidentifiers: ['host=a', 'host=b'] },
    status.INVALID_ARGUMENT,
    /expected at most one set of agent identifiers/,
  ],
  [
    'malformed identifiers',
    { agentid: 'a', agentidentifiers: 'host=%zz' },
    status.INVALID_ARGUMENT,
    /fail to parse url encoded string: invalid URL escape "%zz"/,
  ],
  ['no token', { agentid: 'a' }, status.UNAUTHENTICATED, /Authentication context was not found/],
  ['a token of another kind', { agentid: 'a', authorization: 'Basic x' }, status.UNAUTHENTICATED, /"Bearer " prefix/],
  ['a bad token', { agentid: 'a', authorization: 'Bearer bad' }, status.UNAUTHENTICATED, /err:token is bad/],
];

for (const [what, fields, code, details] of BAD_AGENTS) {
  test(`an agent with ${what} is refused`, async () => {
    const check = async (token: string) => {
      if (token !== 'good') throw new Error(`token is ${token}`);
    };
    const { target, agents, events } = await hub({ admit: ({ authenticate }) => authenticate(check) });
    const refused = once(events, 'refused');
    const metadata = new Metadata();
    for (const [key, values] of Object.entries(fields)) for (const value of [values].flat()) metadata.add(key, value);
    const call = callMethod(target, CONNECT_METHOD, metadata);
    call.on('data', () => {});
    const shown = await ended(call);
    assert.equal(shown.code, code);
    assert.match(shown.details, details);
    assert.equal(agents.length, 0);
    await refused;
  });
}

test('an agent with a good token is let in', async () => {
  const check = async (token: string) => assert.equal(token, 'good');
  const { target, agents } = await hub({ admit: ({ authenticate }) => authenticate(check) });
  const { channel } = await connect(target, '', 'good');
  assert.equal(agents.length, 1);
  channel.destroy(new Error('over'));
});

test('an agent says why a server did not let it in', async () => {
  const check = () => Promise.reject(new Error('no'));
  const { target } = await hub({ admit: ({ authenticate }) => authenticate(check) });
  await assert.rejects(connect(target), { code: 'Unauthenticated', message: /Authentication context was not found/ });
  const silent = await listen(() => {});
  const signal = new AbortController().signal;
  const options = { agentId: 'a', identifiers: '', keepaliveMs: 3_600_000, timeout: 50, signal };
  const asks = async (target: string, timeout = DEADLINE_MS) =>
    connectPackets(await connected(target), { ...options, target, timeout });
  await assert.rejects(asks(silent, 50), /no answer from .* within 50 ms/);
  await assert.rejects(asks(await listen((socket) => socket.destroy())), { code: 'Unavailable' });
  const web = http2.createServer((_request, response) => response.writeHead(404).end('no'));
  await assert.rejects(asks(await listen((socket) => web.emit('connection', socket))), {
    code: 'Unimplemented',
    message: 'answered with HTTP status 404',
  });
});

test('a hub that shuts down ends what is left after its grace', async () => {
  const { client, served, server } = await agentAtHub();
  const { end } = await client.dial(request(await destination(echo)));
  await server.close(20);
  assert.equal(server.connections, 0);
  assert.ok((await client.closed) instanceof SessionLost);
  assert.equal(end.stream.destroyed, true);
  await served.closed;
  await until(() => served.open === 0, 'agent has let go');
});

const LIMITED: [what: string, metadata: Record<string, string>, code: status, details: RegExp, where: string][] = [
  ['a long id', { agentid: 'a'.repeat(265) }, status.INVALID_ARGUMENT, /agent ID of 265 characters/, 'grpc agents'],
  [
    'an identifier with a line’s end',
    { agentid: 'a', agentidentifiers: 'host=a%0Ab' },
    status.INVALID_ARGUMENT,
    /identifiers with control characters/,
    'grpc agents',
  ],
  [
    'more bytes of identifiers than it may have',
    { agentid: 'a', agentidentifiers: `host=${'x'.repeat(100)}` },
    status.RESOURCE_EXHAUSTED,
    /105 bytes in the agent's identifiers, more than 100: --max-agent-identifier-bytes/,
    'agent identifiers',
  ],
  [
    'more identifiers than it may have',
    { agentid: 'a', agentidentifiers: 'a&b&c&d&e' },
    status.RESOURCE_EXHAUSTED,
    /5 identifiers in the agent's identifiers, more than 4: --max-agent-identifiers/,
    'agent identifiers',
  ],
  ['no room', { agentid: 'full' }, status.RESOURCE_EXHAUSTED, /full has enough/, 'agent sessions'],
];

for (const [what, fields, code, details, where] of LIMITED) {
  test(`an agent with ${what} is refused before its token is looked at`, async () => {
    const reviewed: string[] = [];
    const { target, agents, events } = await hub({
      identifierLimits: { identifiers: 4, identifierBytes: 100 },
      async admit({ agentId, authenticate }) {
        if (agentId === 'full') throw new AgentLimitError('agent sessions', 'full has enough');
        await authenticate(async (token) => void reviewed.push(token));
      },
    });
    const refused = once(events, 'refused');
    const metadata = new Metadata();
    metadata.add('authorization', 'Bearer x');
    for (const [key, value] of Object.entries(fields)) metadata.add(key, value);
    const call = callMethod(target, CONNECT_METHOD, metadata);
    call.on('data', () => {});
    const shown = await ended(call);
    assert.deepEqual([shown.code, (await refused)[0]], [code, where]);
    assert.match(shown.details, details);
    assert.deepEqual([agents.length, reviewed], [0, []]);
  });
}

test('an agent whose room others took while its token was looked at is told so, and not that it is in', {
  timeout: 60_000,
}, async () => {
  const { target, agents, events } = await hub({
    checkRoom() {
      throw new AgentLimitError('agent sessions', 'full has enough');
    },
  });
  const refused = once(events, 'refused');
  const metadata = new Metadata();
  metadata.add('agentid', 'full');
  const call = callMethod(target, CONNECT_METHOD, metadata);
  const heads: Metadata[] = [];
  call.on('metadata', (head: Metadata) => heads.push(head)).on('data', () => {});
  assert.equal((await ended(call)).code, status.RESOURCE_EXHAUSTED);
  assert.equal((await refused)[0], 'agent sessions');
  assert.deepEqual([heads.flatMap((head) => head.get('serverid')), agents], [[], []]);
});

test('the check of a token is given up when its agent goes away', async () => {
  const asked = Promise.withResolvers<AbortSignal>();
  const { target } = await hub({
    admit: ({ authenticate }) =>
      authenticate((_token, { signal, source }) => {
        assert.equal(source, '127.0.0.1');
        asked.resolve(signal);
        return new Promise(() => {});
      }),
  });
  const metadata = new Metadata();
  metadata.add('agentid', 'a');
  metadata.add('authorization', 'Bearer x');
  const call = callMethod(target, CONNECT_METHOD, metadata);
  call.on('error', () => {});
  const signal = await asked.promise;
  assert.equal(signal.aborted, false);
  call.cancel();
  await until(() => signal.aborted, 'it is told');
});

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
    end.stream.write('x'.repeat(25));
    assert.equal(String((await once(end.stream, 'data'))[0]).length, 25);
    end.stream.resume().end();
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
  await pings(other.end.stream, 200);
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
  await pings(dialled.end.stream, 1);
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
  await pings(end.stream, 2);
  const basic = (text: string) => `Basic ${Buffer.from(text).toString('base64')}`;
  (await dial(basic('beta:good'))).end.stream.destroy();
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
  end.stream.destroy();

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
