import assert from 'node:assert/strict';
import { type EventEmitter, once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import net, { type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { afterEach, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Client, credentials, Metadata, type StatusObject, status } from '@grpc/grpc-js';
import { encodePacket, type Packet } from '@isthmus/proto';
import {
  type Dial,
  DialError,
  type DialRequest,
  deferred,
  type PlaneEvents,
  planeEvents,
  SessionLost,
} from '@isthmus/tunnel';
import { endpointDial } from '../endpoint.ts';
import { type PacketDialer, packetDialer } from '../packets/dial.ts';
import { type ServedPackets, servePackets } from '../packets/serve.ts';
import { connectPackets } from './agent-client.ts';
import { type AgentServiceOptions, agentService, type PacketAgent } from './agent-service.ts';
import { clientChannel, receivePacket } from './channel.ts';
import { type ProxyServiceOptions, proxyService } from './proxy-service.ts';
import { type GrpcServer, grpcServer } from './server.ts';
import { CONNECT_METHOD, type GrpcService, PROXY_METHOD } from './service.ts';

const DEADLINE_MS = 5_000;

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function until(what: string, condition: () => boolean): Promise<void> {
  const end = performance.now() + DEADLINE_MS;
  while (!condition()) {
    assert.ok(performance.now() < end, `still not: ${what}`);
    await delay(1);
  }
}

async function listen(accept: (socket: Socket) => void, path?: string): Promise<string> {
  const sockets = new Set<Socket>();
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.once('close', () => sockets.delete(socket));
    accept(socket);
  });
  server.listen(path === undefined ? { host: '127.0.0.1', port: 0 } : { path });
  await once(server, 'listening');
  cleanups.push(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return path === undefined ? `127.0.0.1:${(server.address() as AddressInfo).port}` : `unix://${path}`;
}

function socketPath(): string {
  const folder = mkdtempSync(join(tmpdir(), 'isthmus-'));
  cleanups.push(() => rmSync(folder, { recursive: true }));
  return join(folder, 's.sock');
}

interface Served {
  server: GrpcServer;
  target: string;
}

async function serveGrpc(service: GrpcService, events: PlaneEvents, path?: string): Promise<Served> {
  const server = grpcServer({
    services: [service],
    events,
    name: 'grpc',
    keepaliveMs: 3_600_000,
    streamWindow: 1024 * 1024,
  });
  const target = await listen((socket) => server.accept(socket), path);
  cleanups.push(() => server.close(0));
  return { server, target };
}

/** A plain destination; what it does with a connection is the test's. */
async function destination(serve: (socket: Socket) => void): Promise<DialRequest['destination']> {
  const [host, port] = (await listen(serve)).split(':') as [string, string];
  return { host, port: Number(port) };
}

const echo = (socket: Socket) => void socket.pipe(socket);

function request(destination: DialRequest['destination'], over: Partial<DialRequest> = {}): DialRequest {
  return {
    id: '0123456789abcdef',
    tenant: 'default',
    destination,
    deadline: performance.now() + DEADLINE_MS,
    signal: new AbortController().signal,
    ...over,
  };
}

/** Round trips through a tunnel to an echo. */
async function pings(stream: Duplex, count: number): Promise<void> {
  for (let i = 0; i < count; i++) {
    stream.write('ping');
    assert.equal(String((await once(stream, 'data'))[0]), 'ping');
  }
}

interface Hub extends Served {
  agents: PacketAgent[];
  dialers: PacketDialer[];
  events: PlaneEvents;
}

async function hub(options: Partial<AgentServiceOptions> = {}): Promise<Hub> {
  const events = planeEvents();
  const agents: PacketAgent[] = [];
  const dialers: PacketDialer[] = [];
  const service = agentService({
    serverId: 'h1',
    serverCount: () => 3,
    events,
    onAgent: (agent) => {
      agents.push(agent);
      dialers.push(packetDialer(agent.channel, { agentId: agent.agentId, sessionId: 's1', hubId: 'h1', events }));
    },
    ...options,
  });
  return { ...(await serveGrpc(service, events)), agents, dialers, events };
}

async function connect(target: string, identifiers = '', token?: string) {
  return connectPackets({
    target,
    agentId: 'a1',
    identifiers,
    keepaliveMs: 3_600_000,
    timeout: DEADLINE_MS,
    signal: new AbortController().signal,
    ...(token !== undefined && { token }),
  });
}

/** A hub and an agent of ours on it. */
async function agentAtHub(): Promise<Hub & { dialer: PacketDialer; served: ServedPackets }> {
  const at = await hub();
  const { channel } = await connect(at.target);
  const dial = endpointDial({ agentId: 'a1' });
  const served = servePackets(channel, { role: 'agent', dial, tenant: 'default', events: planeEvents() });
  cleanups.push(() => served.destroy(new Error('test is over')));
  return { ...at, dialer: at.dialers[0] as PacketDialer, served };
}

async function gateway(options: Partial<ProxyServiceOptions> = {}, path?: string) {
  const events = planeEvents();
  const dialled: DialRequest[] = [];
  const dial: Dial = (dialRequest) => {
    dialled.push(dialRequest);
    return (options.dial ?? endpointDial({ agentId: 'a1' }))(dialRequest);
  };
  const service = proxyService({ tenant: 'default', events, timeout: DEADLINE_MS, ...options, dial });
  return { ...(await serveGrpc(service, events, path)), events, dialled };
}

function callMethod(target: string, method: string, metadata = new Metadata()) {
  const client = new Client(target, credentials.createInsecure(), { 'grpc.use_local_subchannel_pool': 1 });
  const call = client.makeBidiStreamRequest(method, encodePacket, receivePacket, metadata);
  call.once('status', () => client.close());
  cleanups.push(() => call.cancel());
  return call;
}

/** How a call ended. */
function ended(call: EventEmitter): Promise<StatusObject> {
  call.on('error', () => {});
  return new Promise((resolve) => call.once('status', resolve));
}

/** A caller of ProxyService is the dialling half too. */
function caller(target: string): PacketDialer {
  const channel = clientChannel(callMethod(target, PROXY_METHOD), target);
  return packetDialer(channel, { agentId: 'gateway', sessionId: '', hubId: '', events: planeEvents() });
}

test('an agent of ours carries tunnels of a hub of ours over AgentService', async () => {
  const { dialer, dialers, agents, served, server } = await agentAtHub();
  assert.equal(dialers.length, 1);
  assert.equal(agents[0]?.agentId, 'a1');
  assert.match(agents[0]?.peer.remote ?? '', /^127\.0\.0\.1:\d+$/);
  const { end } = await dialer.dial(request(await destination(echo)));
  end.stream.write('hello');
  assert.equal(String((await once(end.stream, 'data'))[0]), 'hello');
  end.stream.end();
  await until('tunnel gone', () => dialer.open === 0 && served.open === 0);
  served.destroy(new Error('over'));
  await until('connection gone', () => server.connections === 0);
  assert.ok((await dialer.closed) instanceof SessionLost);
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
    const authenticate = async (token: string) => {
      if (token !== 'good') throw new Error(`token is ${token}`);
    };
    const { target, agents, events } = await hub({ authenticate });
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
  const { target, agents } = await hub({ authenticate: async (token) => assert.equal(token, 'good') });
  const { channel } = await connect(target, '', 'good');
  assert.equal(agents.length, 1);
  channel.destroy(new Error('over'));
});

test('an agent says why a server did not let it in', async () => {
  const { target } = await hub({
    authenticate: async () => {
      throw new Error('no');
    },
  });
  await assert.rejects(connect(target), { code: 'Unauthenticated', message: /Authentication context was not found/ });
  const silent = await listen(() => {});
  const signal = new AbortController().signal;
  const options = { agentId: 'a', identifiers: '', keepaliveMs: 3_600_000, timeout: 50, signal };
  await assert.rejects(connectPackets({ target: silent, ...options }), /no answer from .* within 50 ms/);
  const nobody = await listen(() => {});
  await (cleanups.pop() as () => Promise<void>)();
  await assert.rejects(connectPackets({ target: nobody, ...options, timeout: DEADLINE_MS }), { code: 'Unavailable' });
});

for (const [where, path] of [
  ['TCP', () => undefined],
  ['a unix socket', socketPath],
] as const) {
  test(`a caller dials over ${where} and its stream ends with its tunnel`, async () => {
    const { target, dialled, server } = await gateway({}, path());
    const dialer = caller(target);
    const { end } = await dialer.dial(request(await destination(echo)));
    assert.equal(dialled[0]?.caller?.via, 'grpc');
    const from = path() === undefined ? /^127\.0\.0\.1:/ : /^uds$/;
    assert.match(dialled[0]?.caller?.identity ?? '', from);
    assert.match(dialled[0]?.caller?.remote ?? '', from);
    end.stream.write('x'.repeat(25));
    assert.equal(String((await once(end.stream, 'data'))[0]).length, 25);
    end.stream.resume().end();
    await until('tunnel gone', () => dialer.open === 0);
    assert.match((await dialer.closed).message, /closed its stream/);
    await until('connection gone', () => server.connections === 0);
  });
}

test('a gateway hands on the words of a failed dial and ends the stream', async () => {
  const { target, server } = await gateway({
    dial: async () => {
      throw new DialError('destination_unavailable', 'No agent available');
    },
  });
  const dialer = caller(target);
  await assert.rejects(dialer.dial(request({ host: 'h', port: 1 })), { message: 'No agent available' });
  await dialer.closed;
  await until('connection gone', () => server.connections === 0);
});

test('a caller that cancels while its dial is pending aborts it', async () => {
  const pending = deferred<DialRequest>();
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
  await until('garbage is gone', () => server.connections === 0);
  const silent = net.connect({ port: Number(port), host, allowHalfOpen: true }).on('error', () => {});
  cleanups.push(() => silent.destroy());
  silent
    .resume()
    .write(Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0])]));
  await once(silent, 'data');
  assert.equal(server.connections, 1);
  silent.end();
  await until('connection gone', () => server.connections === 0);
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
  await until('tunnel', () => packets.length === 1);
  const data = Buffer.alloc(4 * 1024 * 1024);
  call.write({ type: 'DATA', connectID: 1n, error: '', data });
  await until('data there', () => received === data.length);
  const end = ended(call);
  call.write({ type: 'DATA', connectID: 1n, error: '', data: Buffer.alloc(5 * 1024 * 1024) });
  assert.equal((await end).code, status.RESOURCE_EXHAUSTED);
});

test('a caller that does not read stops its destination, and nothing is lost when it reads on', async () => {
  const { target } = await gateway();
  const size = 32 * 1024 * 1024;
  const source = deferred<Socket>();
  const far = await destination((socket) => {
    source.resolve(socket);
    socket.end(Buffer.alloc(size, 'x'));
  });
  const call = callMethod(target, PROXY_METHOD);
  call.on('error', () => {});
  call.write({ type: 'DIAL_REQ', protocol: 'tcp', address: `${far.host}:${far.port}`, random: 1n });
  await once(call, 'readable');
  const other = await caller(target).dial(request(await destination(echo)));
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

test('one stalled tunnel of an agent’s stream does not stop the others', async () => {
  const { dialer } = await agentAtHub();
  const bulk = await destination((socket) => {
    socket.write(Buffer.alloc(8 * 1024 * 1024));
  });
  const stalled = await dialer.dial(request(bulk));
  const { end } = await dialer.dial(request(await destination(echo)));
  await pings(end.stream, 100);
  assert.equal(stalled.end.stream.destroyed, false);
});

test('when 32 busy tunnels are cut at once, everything else works on', async () => {
  const { dialer, served } = await agentAtHub();
  const bulk = await destination((socket) => {
    const chunk = Buffer.alloc(256 * 1024);
    const more = () => {
      while (socket.write(chunk));
    };
    socket.on('drain', more).resume();
    more();
  });
  const busy = await Promise.all(Array.from({ length: 32 }, () => dialer.dial(request(bulk))));
  const quiet = await dialer.dial(request(await destination(echo)));
  for (const { end } of busy) end.stream.resume();
  await Promise.all(busy.map(({ end }) => once(end.stream, 'data')));
  for (const { end } of busy) end.abort(new Error('cut'));
  quiet.end.stream.write('ping');
  assert.equal(String((await once(quiet.end.stream, 'data'))[0]), 'ping');
  const next = await dialer.dial(request(await destination(echo)));
  next.end.stream.write('next');
  assert.equal(String((await once(next.end.stream, 'data'))[0]), 'next');
  await until('the cut ones are gone', () => dialer.open === 2 && served.open === 2);
});

test('a hub that shuts down ends what is left after its grace', async () => {
  const { dialer, served, server } = await agentAtHub();
  const { end } = await dialer.dial(request(await destination(echo)));
  await server.close(20);
  assert.equal(server.connections, 0);
  assert.ok((await dialer.closed) instanceof SessionLost);
  assert.equal(end.stream.destroyed, true);
  await served.closed;
  await until('agent has let go', () => served.open === 0);
});

test('10,000 tunnels over one agent’s stream leave nothing behind', async () => {
  const { dialer, served } = await agentAtHub();
  const far = await destination((socket) => void socket.resume().once('end', () => socket.end()));
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
  const before = timers();
  for (let done = 0; done < 10_000; done += 50) {
    await Promise.all(
      Array.from({ length: 50 }, async (_, i) => {
        const { end } = await dialer.dial(request(far));
        if (i % 2 === 0) end.abort(new Error('cut'));
        else end.stream.resume().end();
      }),
    );
    await until('all closed', () => dialer.open === 0 && served.open === 0);
  }
  assert.ok(timers() <= before + 1, `timers: ${timers()}, before: ${before}`);
});
