import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { unlessGivenUp } from '@isthmus/runtime';
import { checkName, planeEnded } from '@isthmus/tunnel';
import {
  ClientCall,
  type Config,
  Connection,
  DEFAULT_FRAME,
  greeting,
  type Metadata,
  type OutgoingHead,
  type PacketChannel,
  WIRE,
} from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import { quoted } from '../http1.ts';
import { CONNECT_METHOD } from '../packets/mux.ts';
import { handshakeFailure } from '../tls/admit.ts';
import { CALLERS_GROWTH } from './server.ts';

/** What a server may do. It opens no streams. */
const CONFIG: Config = {
  ...WIRE,
  windowBytes: TRANSPORT.packetsStreamWindowBytes,
  streams: 0,
  frameBytes: DEFAULT_FRAME,
  headBytes: TRANSPORT.grpcFieldsBytes,
  resets: TRANSPORT.grpcResets,
  backlogBytes: TRANSPORT.grpcBacklogBytes,
};

/** One window for good: what a server sends ahead waits in front of every other tunnel's bytes. */
const GROWTH = { largest: TRANSPORT.packetsStreamWindowBytes, budget: CALLERS_GROWTH, local: CALLERS_GROWTH };

interface CallOptions {
  /** `host:port` of the server. */
  readonly target: string;
  /** `/Service/Method`. */
  readonly method: string;
  readonly metadata?: OutgoingHead;
  /** How long the server may be silent before it is pinged, in milliseconds. */
  readonly keepaliveMs: number;
}

/** Begins a call on a connected socket, which has it alone, and ends with it. */
export function clientCall(socket: Socket, { target, method, metadata, keepaliveMs }: CallOptions): ClientCall {
  const connection = new Connection(socket, {
    role: 'client',
    config: CONFIG,
    greeting: greeting('client', CONFIG),
    rules: { growth: GROWTH },
    defer: process.nextTick,
    latePongs: true,
    keepaliveMs,
    lost: (reason, isFault) => (isFault ? planeEnded(reason) : handshakeFailure(reason)),
    opened() {},
    goaway: (reason) => reason && connection.destroy(reason),
    fault() {},
  });
  const head = {
    ...{ ':method': 'POST', ':scheme': socket instanceof TLSSocket ? 'https' : 'http' },
    ...{ ':authority': target, ':path': method },
    ...{ te: 'trailers', 'content-type': 'application/grpc', 'user-agent': 'isthmus' },
    ...metadata,
  };
  const stream = connection.begin(head);
  const call = new ClientCall(stream, target, TRANSPORT.packetsHeldBytes, () => connection.close());
  connection.start();
  return call;
}

export interface ConnectPacketsOptions extends Pick<CallOptions, 'target' | 'keepaliveMs'> {
  readonly agentId: string;
  /** URL query, as the server expects it. */
  readonly identifiers: string;
  readonly token?: string;
  /** How long the server may take to accept the agent, in milliseconds. */
  readonly timeout: number;
  /** Gives up the attempt. Has no effect on an accepted agent. */
  readonly signal: AbortSignal;
}

interface PacketServerLink {
  readonly serverId: string;
  /** The number of servers, as this one reports it. */
  readonly serverCount: number;
  readonly channel: PacketChannel;
}

/**
 * Asks a Go server for a session, on a connection of its own, because many servers may be behind one address. Rejects with an Error that
 * says why the server did not accept the agent, or a StatusError if the connection or the server failed.
 */
export async function connectPackets(socket: Socket, options: ConnectPacketsOptions): Promise<PacketServerLink> {
  const { agentId: agentid, identifiers: agentidentifiers, token, target, timeout, signal } = options;
  const metadata = { agentid, agentidentifiers, ...(token !== undefined && { authorization: `Bearer ${token}` }) };
  const call = clientCall(socket, { ...options, method: CONNECT_METHOD, metadata });
  const late = `no answer from ${target} within ${timeout} ms`;
  try {
    const answer = await unlessGivenUp(call, () => call.answered, { timeout, late, signal });
    return { ...readAnswer(answer), channel: call };
  } catch (error) {
    call.destroy(error as Error);
    throw error;
  }
}

function readAnswer(metadata: Metadata): { serverId: string; serverCount: number } {
  const serverId = checkName('server ID', exactlyOne(metadata, 'serverid', 'server ID'));
  const count = exactlyOne(metadata, 'servercount', 'server count');
  if (!/^\d{1,9}$/.test(count)) throw new Error(`server count is not a number: ${quoted(count)}`);
  return { serverId, serverCount: Number(count) };
}

function exactlyOne(metadata: Metadata, key: string, what: string): string {
  const values = metadata.get(key);
  if (values.length !== 1) throw new Error(`expected one ${what} in the server's answer, got ${values.length}`);
  return String(values[0]);
}
