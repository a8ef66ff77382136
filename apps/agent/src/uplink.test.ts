import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import http2 from 'node:http2';
import net, { type AddressInfo, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import tls from 'node:tls';
import { Authority, type IdentityOptions } from '@isthmus/certificates/testing';
import { changed, until } from '@isthmus/runtime/testing';
import { encodeControl, LinkClient, type MembershipMessage, SocketEnd, upgradeServer } from '@isthmus/transport';
import { planeEvents } from '@isthmus/tunnel';
import { AGENT } from './defaults.ts';
import { AgentToken } from './token.ts';
import { connectUplink, type UplinkOptions } from './uplink.ts';

const OTHERS = ['127.0.0.1:1', '10.0.0.1:2', ''].map((address, index) => {
  return { hubId: `h${index}`, address, zone: '', draining: false, generation: 1 };
});

/** A hub that takes every agent, and what tokens it saw. */
function hub(offers: { readonly policy?: true; readonly renewal?: true } = {}) {
  const tokens: (string | undefined)[] = [];
  const upgrades = upgradeServer({
    async admit({ token }) {
      tokens.push(token);
      return { hubId: 'h0', sessionId: 's1', tenant: 'default', plane: 'p', serverCount: 1, ...offers };
    },
    open(socket) {
      const link = new LinkClient({ socket, peer: 'agent a1', events: planeEvents() });
      link.sendLine(encodeControl({ type: 'membership', current: true, hubs: OTHERS }));
    },
    refused() {},
    fault() {},
  });
  return { tokens, upgrades };
}

/** The server's connections end with the test, also if it fails: an open one would keep the process alive. */
async function portOf(server: Server, context: TestContext): Promise<number> {
  const sockets = new Set<net.Socket>();
  server.on('connection', (socket) => sockets.add(socket));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return (server.address() as AddressInfo).port;
}

function options(more: Partial<UplinkOptions>): UplinkOptions {
  return {
    serverNames: ['hubs.example'],
    alpn: [],
    packetServers: new Set(),
    keepaliveTime: 60_000,
    timeout: 60_000,
    hello: { agentId: 'a1', identifiers: '', tenant: 'default', version: '1' },
    token: new AgentToken(() => 'secret'),
    dial: () => () => Promise.reject(new Error('no dials')),
    signal: new AbortController().signal,
    events: planeEvents(),
    membership() {},
    leave() {},
    ...more,
  };
}

async function addressesTold(context: TestContext, more: Partial<UplinkOptions>): Promise<string[]> {
  const { upgrades } = hub();
  const port = await portOf(
    net.createServer((socket) => upgrades(new SocketEnd(socket), Buffer.alloc(0))),
    context,
  );
  const told = Promise.withResolvers<MembershipMessage>();
  const membership = (message: MembershipMessage) => told.resolve(message);
  const uplink = await connectUplink(
    { address: '127.0.0.1', port },
    options({ serverNames: ['127.0.0.1'], ...more, membership }),
  );
  context.after(() => uplink.destroy(new Error('test is over')));
  const message = await told.promise;
  return message.type === 'membership' ? message.hubs.map(({ address }) => address) : [];
}

test('a link that cannot begin, or that ends, leaves no timers behind', { timeout: 60_000 }, async (context) => {
  // A time that no other timer has.
  using _ = changed(AGENT, { rulesMs: 123_456 });
  const { upgrades } = hub({ policy: true, renewal: true });
  const port = await portOf(
    net.createServer((socket) => upgrades(new SocketEnd(socket), Buffer.alloc(0))),
    context,
  );
  const { setTimeout, clearTimeout } = globalThis;
  const own: readonly unknown[] = [AGENT.rulesMs];
  const [begun, armed]: [unknown[], Set<unknown>] = [[], new Set()];
  context.mock.method(globalThis, 'setTimeout', (...args: Parameters<typeof setTimeout>) => {
    const timer = setTimeout(...args);
    if (own.includes(args[1])) {
      begun.push(args[1]);
      armed.add(timer);
    }
    return timer;
  });
  context.mock.method(globalThis, 'clearTimeout', (timer: NodeJS.Timeout | undefined) => {
    armed.delete(timer);
    clearTimeout(timer);
  });
  context.after(() => {
    for (const timer of armed) clearTimeout(timer as NodeJS.Timeout);
  });
  const attempt = new AbortController();
  const { signal } = attempt;
  const dial = () => {
    // It tries no gRPC then.
    attempt.abort();
    throw new Error('a defect');
  };
  const settings = options({ serverNames: ['127.0.0.1'] });
  await assert.rejects(connectUplink({ address: '127.0.0.1', port }, { ...settings, signal, dial }), /a defect/);
  assert.deepEqual(begun, [AGENT.rulesMs]);
  await until(() => armed.size === 0, 'the end of the first link');
  const uplink = await connectUplink({ address: '127.0.0.1', port }, settings);
  assert.deepEqual(begun.slice(1).sort(), own);
  assert.equal(armed.size, 1);
  uplink.destroy(new Error('seen'));
  await until(() => armed.size === 0, 'the end of the second link');
});

test('a certificate for the address that is dialled makes no hub: it gets no token', {
  timeout: 60_000,
}, async (context) => {
  const dir = await mkdtemp(join(tmpdir(), 'isthmus-uplink-'));
  context.after(() => rm(dir, { recursive: true }));
  const authority = await Authority.create(dir, 'agents');
  const connect = async (hosts: NonNullable<IdentityOptions['hosts']>) => {
    const identity = await authority.server({ hosts });
    const { tokens, upgrades } = hub();
    const files = { cert: await readFile(identity.cert), key: await readFile(identity.key) };
    const server = tls.createServer({ ...files, ALPNProtocols: ['http/1.1'] }, (socket) =>
      upgrades(new SocketEnd(socket), Buffer.alloc(0)),
    );
    const port = await portOf(server, context);
    const settings = options({ tls: { ca: authority.cert } });
    try {
      (await connectUplink({ address: '127.0.0.1', port }, settings)).destroy(new Error('seen'));
    } catch (error) {
      return { tokens, why: (error as Error).message.replace(/^.* is refused: /, '') };
    }
    return { tokens };
  };
  assert.deepEqual(await connect([{ type: 'ip', value: '127.0.0.1' }]), {
    tokens: [],
    why: 'it does not name hubs.example or isthmus-hub (subjectAltName); its names: 127.0.0.1',
  });
  assert.deepEqual(await connect([{ type: 'dns', value: 'hubs.example' }]), { tokens: ['secret'] });
  assert.deepEqual(await connect([{ type: 'dns', value: 'isthmus-hub' }]), { tokens: ['secret'] });
});

test('the connection on which a server chose gRPC is the one that speaks it', { timeout: 60_000 }, async (context) => {
  const dir = await mkdtemp(join(tmpdir(), 'isthmus-uplink-'));
  context.after(() => rm(dir, { recursive: true }));
  const authority = await Authority.create(dir, 'agents');
  const identity = await authority.server({ hosts: [{ type: 'dns', value: 'hubs.example' }] });
  const server = http2.createSecureServer({ cert: await readFile(identity.cert), key: await readFile(identity.key) });
  const seen = { connections: 0, streams: 0 };
  server.on('connection', () => seen.connections++);
  server.on('stream', (stream) => {
    seen.streams++;
    stream.on('error', () => {});
    stream.respond({ ':status': 200, 'content-type': 'application/grpc', serverid: 'go-1', servercount: '1' });
  });
  const port = await portOf(server, context);
  const uplink = await connectUplink({ address: '127.0.0.1', port }, options({ tls: { ca: authority.cert } }));
  uplink.destroy(new Error('seen'));
  assert.deepEqual([uplink.serverId, uplink.protocol], ['go-1', 'packets']);
  assert.deepEqual(seen, { connections: 1, streams: 1 });
});

test('certificates that cannot be read open no connection to the proxy', { timeout: 60_000 }, async (context) => {
  let connections = 0;
  const answer = (socket: net.Socket) => {
    connections++;
    socket.on('error', () => {}).once('data', () => socket.write('HTTP/1.1 200 OK\r\n\r\n'));
  };
  const port = await portOf(net.createServer(answer), context);
  const proxy = { host: '127.0.0.1', port, secure: false, name: 'http://proxy.example:3128' };
  const more = options({ tls: { ca: '/none/ca.crt' }, proxy: () => proxy });
  await assert.rejects(connectUplink({ address: 'hubs.example', port: 8091 }, more), /ca\.crt/);
  assert.equal(connections, 0);
});

test('without TLS an agent that shows a token is led to no other host', { timeout: 60_000 }, async (context) => {
  assert.deepEqual(await addressesTold(context, {}), ['127.0.0.1:1', '', '']);
  assert.deepEqual(await addressesTold(context, { token: new AgentToken(() => undefined) }), [
    '127.0.0.1:1',
    '10.0.0.1:2',
    '',
  ]);
});

const silences = [
  { server: 'takes connections and says nothing', hangsUp: 0, settings: {} },
  { server: 'begins no TLS', hangsUp: 0, settings: { tls: {} } },
  { server: 'hangs up as a gRPC server does, and then says nothing', hangsUp: 1, settings: {} },
] satisfies { server: string; hangsUp: number; settings: Partial<UplinkOptions> }[];
for (const { server, hangsUp, settings } of silences) {
  test(`an attempt that is given up ends at once where a server ${server}`, { timeout: 60_000 }, async (context) => {
    const silent = Promise.withResolvers<net.Socket>();
    let connections = 0;
    const port = await portOf(
      net.createServer((socket) => {
        socket.on('error', () => {});
        if (connections++ < hangsUp) socket.destroy();
        else silent.resolve(socket.resume());
      }),
      context,
    );
    const attempt = new AbortController();
    const { signal } = attempt;
    const address = { address: '127.0.0.1', port };
    const more = { serverNames: ['127.0.0.1'], signal, timeout: 60_000, ...settings };
    const failure = assert.rejects(connectUplink(address, options(more)), /abandoned|aborted/);
    const socket = await silent.promise;
    attempt.abort();
    await failure;
    if (!socket.destroyed) await once(socket, 'close');
  });
}
