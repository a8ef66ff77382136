import assert from 'node:assert/strict';
import { type EventEmitter, once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import net, { type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { Client, credentials, Metadata, type StatusObject } from '@grpc/grpc-js';
import { decodePacket, encodePacket } from '@isthmus/proto';
import { DEADLINE_MS } from '@isthmus/runtime/testing';
import { type Dial, type DialRequest, type PlaneEvents, planeEvents } from '@isthmus/tunnel';
import { endpointDial } from '../../endpoint.ts';
import { anyoneOf } from '../../listen.ts';
import { PacketClient } from '../../packets/dial.ts';
import { PROXY_METHOD } from '../../packets/mux.ts';
import { PacketServer } from '../../packets/serve.ts';
import { cleanups } from '../../testing/cleanups.ts';
import { type AgentServiceOptions, agentService, type PacketAgent } from '../agents.ts';
import { type ProxyServiceOptions, proxyService } from '../callers.ts';
import { clientCall, connectPackets } from '../client.ts';
import { GrpcServer, type GrpcService } from '../server.ts';

export async function listen(accept: (socket: Socket) => void, path?: string): Promise<string> {
  const sockets = new Set<Socket>();
  const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
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

export function socketPath(): string {
  const folder = mkdtempSync(join(tmpdir(), 'isthmus-'));
  cleanups.push(() => rmSync(folder, { recursive: true }));
  return join(folder, 's.sock');
}

export interface Served {
  server: GrpcServer;
  target: string;
}

export async function serveGrpc(service: GrpcService, events: PlaneEvents, path?: string): Promise<Served> {
  const server = new GrpcServer({
    service,
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
export async function destination(serve: (socket: Socket) => void): Promise<DialRequest['destination']> {
  const [host, port] = (await listen(serve)).split(':') as [string, string];
  return { host, port: Number(port) };
}

export const echo = (socket: Socket) => void socket.pipe(socket);

export function request(destination: DialRequest['destination'], over: Partial<DialRequest> = {}): DialRequest {
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
export async function pings(stream: Duplex, count: number): Promise<void> {
  for (let i = 0; i < count; i++) {
    stream.write('ping');
    assert.equal(String((await once(stream, 'data'))[0]), 'ping');
  }
}

export interface Hub extends Served {
  agents: PacketAgent[];
  clients: PacketClient[];
  events: PlaneEvents;
}

type Tenant = { readonly tenant: string };

/** @param options may have an `admit` that says no tenant */
export async function hub({
  admit,
  ...options
}: Partial<Omit<AgentServiceOptions<Tenant>, 'admit'> & Pick<AgentServiceOptions<void>, 'admit'>> = {}): Promise<Hub> {
  const events = planeEvents();
  const agents: PacketAgent[] = [];
  const clients: PacketClient[] = [];
  const service = agentService({
    serverId: 'h1',
    serverCount: () => 3,
    events,
    async admit(agent) {
      await admit?.(agent);
      return { tenant: 'default' };
    },
    checkRoom() {},
    onAgent: (agent) => {
      agents.push(agent);
      clients.push(new PacketClient(agent.channel, { agentId: agent.agentId, sessionId: 's1', hubId: 'h1', events }));
    },
    ...options,
  });
  return { ...(await serveGrpc(service, events)), agents, clients, events };
}

/** Connects to what `listen` listens on. */
export async function connected(target: string): Promise<Socket> {
  const [host, port] = target.split(':') as [string, string];
  const socket = net.connect(host === 'unix' ? { path: port.slice(2) } : { host, port: Number(port) });
  await once(socket, 'connect');
  return socket.on('error', () => {});
}

export async function connect(target: string, identifiers = '', token?: string) {
  return connectPackets(await connected(target), {
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
export async function agentAtHub(): Promise<Hub & { client: PacketClient; served: PacketServer }> {
  const at = await hub();
  const { channel } = await connect(at.target);
  const dial = endpointDial({ agentId: 'a1' });
  const served = new PacketServer(channel, { dial, tenant: 'default', events: planeEvents() });
  cleanups.push(() => served.destroy(new Error('test is over')));
  return { ...at, client: at.clients[0] as PacketClient, served };
}

export async function gateway(options: Partial<ProxyServiceOptions> = {}, path?: string) {
  const events = planeEvents();
  const dialled: DialRequest[] = [];
  const dial: Dial = (dialRequest) => {
    dialled.push(dialRequest);
    return (options.dial ?? endpointDial({ agentId: 'a1' }))(dialRequest);
  };
  const service = proxyService({ identifyCaller: anyoneOf('default'), events, timeout: DEADLINE_MS, ...options, dial });
  return { ...(await serveGrpc(service, events, path)), events, dialled };
}

export function callMethod(target: string, method: string, metadata = new Metadata()) {
  const client = new Client(target, credentials.createInsecure(), { 'grpc.use_local_subchannel_pool': 1 });
  const call = client.makeBidiStreamRequest(method, encodePacket, decodePacket, metadata);
  call.once('status', () => client.close());
  cleanups.push(() => call.cancel());
  return call;
}

/** How a call ended. */
export function ended(call: EventEmitter): Promise<StatusObject> {
  call.on('error', () => {});
  return new Promise((resolve) => call.once('status', resolve));
}

/** A caller of ProxyService is the dialling half too. */
export async function caller(target: string, metadata: Record<string, string> = {}): Promise<PacketClient> {
  const channel = clientCall(await connected(target), {
    ...{ target, method: PROXY_METHOD, metadata, keepaliveMs: 3_600_000 },
  });
  cleanups.push(() => channel.destroy(new Error('test is over')));
  return new PacketClient(channel, { agentId: 'gateway', sessionId: '', hubId: '', events: planeEvents() });
}
