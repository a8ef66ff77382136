import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import {
  type Dial,
  DialError,
  type DialRequest,
  type Established,
  type PlaneEvents,
  planeEvents,
} from '@isthmus/tunnel';
import { endOf, streamOf } from '@isthmus/tunnel/testing';
import { SocketEnd } from '../socket-end.ts';
import { cleanups } from '../testing/cleanups.ts';
import { LinkClient, type LinkClientOptions } from './client.ts';
import { LinkServer, type LinkServerOptions } from './server.ts';
import { LinkRefused, requestLink, upgradeServer } from './upgrade.ts';

/** @returns the port of 127.0.0.1 where it listens until the test is over */
export async function listen(server: net.Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanups.push(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return (server.address() as AddressInfo).port;
}

/** Opens the destination socket, as an agent does. */
export const dialTcp: Dial = (request) =>
  new Promise((resolve, reject) => {
    const { host, port } = request.destination;
    const socket = net.connect({ host, port, allowHalfOpen: true });
    socket.once('error', () =>
      reject(new DialError('connection_refused', `dial tcp ${host}:${port}: connection refused`)),
    );
    socket.once('connect', () => {
      const end = endOf(socket);
      resolve({ end, agentId: 'a ä', sessionId: 's', hubId: '', timing: { dnsMs: 0.25, connectMs: 1.5 } });
    });
  });

export interface Link {
  client: LinkClient;
  server: LinkServer;
  events: PlaneEvents;
  hubSocket: Socket;
  agentSocket: Socket;
}

/** A hub that takes one agent over a real connection, and that agent. */
export async function link(
  dial: Dial,
  options: Partial<LinkClientOptions> = {},
  serving: Partial<LinkServerOptions> = {},
): Promise<Link> {
  const events = planeEvents();
  const opened = Promise.withResolvers<{ client: LinkClient; hubSocket: Socket }>();
  const upgrades = upgradeServer({
    admit: async (hello) => {
      if (hello.agentId === 'unwanted') throw new LinkRefused(403, 'agent is not welcome: ünwanted');
      return { hubId: 'h1', sessionId: 's1', tenant: 'default', plane: 'p', serverCount: 3 };
    },
    open: (hubSocket) => {
      opened.resolve({
        client: new LinkClient({ socket: hubSocket, peer: 'agent a1', events, ...options }),
        hubSocket,
      });
    },
    refused: () => {},
    fault: () => {},
  });
  const port = await listen(
    net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) =>
      upgrades(new SocketEnd(socket), Buffer.alloc(0)),
    ),
  );
  const socket = net.connect({ port, host: '127.0.0.1', noDelay: true });
  await once(socket, 'connect');
  const hello = await requestLink(
    socket,
    'hub',
    {
      agentId: 'a1',
      identifiers: 'host=x',
      tenant: 'default',
      version: '1',
    },
    60_000,
  );
  assert.deepEqual(hello, { hubId: 'h1', sessionId: 's1', tenant: 'default', plane: 'p', serverCount: 3 });
  const server = new LinkServer({ socket, peer: 'hub h1', role: 'agent', dial, events, ...serving });
  const { client, hubSocket } = await opened.promise;
  cleanups.push(() => client.destroy(new Error('test over')));
  return { client, server, events, hubSocket, agentSocket: socket };
}

let ids = 0;
export function request(port: number, signal: AbortSignal = new AbortController().signal): DialRequest {
  const id = (++ids).toString(16).padStart(16, '0');
  const destination = { host: '127.0.0.1', port };
  return { id, tenant: 'default', destination, deadline: performance.now() + 60_000, session: 's1', signal };
}

/**
 * By its events, as a tunnel does: on Node 26.3 and later the iterator of a stream that was closed before it was read fails
 * behind the last byte.
 */
export async function readAll({ end }: Established): Promise<Buffer> {
  const stream = streamOf(end);
  const chunks: Buffer[] = [];
  await new Promise<void>((resolve, reject) => {
    stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    stream.once('end', resolve).once('error', reject);
    stream.once('close', () => reject(new Error(`closed before its end, after ${Buffer.concat(chunks).length} bytes`)));
  });
  return Buffer.concat(chunks);
}
