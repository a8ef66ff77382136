import { isIP } from 'node:net';
import { type ChannelCredentials, Client, type ClientDuplexStream, Metadata, type ServiceError } from '@grpc/grpc-js';
import { encodePacket, type Packet } from '@isthmus/proto';
import { clientTlsOf, connectTls, keptAlive, secured, type TlsSettings } from '@isthmus/runtime';
import { checkName, formatDestination, parseDestination } from '@isthmus/tunnel';
import { type PacketChannel, WIRE } from '@isthmus/wire';
import type { HttpProxy } from '../http-proxy/http-proxy.ts';
import { askProxy } from '../http-proxy/through-proxy.ts';
import { callError, clientChannel, type Received, receivePacket } from './channel.ts';
import { credentialsBy } from './connection-credentials.ts';
import { keepaliveOptions } from './keepalive-options.ts';
import { CONNECT_METHOD } from './service.ts';

/**
 * What a server may send ahead on the stream that carries all tunnels, in bytes. grpc-js has one fixed size. While a destination reads
 * slowly, all of it waits in front of the other tunnels' bytes: at 1 MiB/s, a ping beside it took 10.7 s with 16 MiB, and 1.5 s with
 * upstream's agent.
 */
const STREAM_WINDOW = 1024 * 1024;

export interface ConnectPacketsOptions {
  /** `host:port` of the server, which its certificate must name. */
  readonly target: string;
  /** `host:port` to connect to, if its name is resolved already. Default: the target. */
  readonly address?: string;
  /** Unset: no TLS. */
  readonly tls?: TlsSettings;
  /** Unset: the server is reached directly. */
  readonly proxy?: HttpProxy;
  readonly agentId: string;
  /** URL query, as the server expects it. */
  readonly identifiers: string;
  readonly token?: string;
  readonly keepaliveMs: number;
  /** How long the server may take to accept the agent, in milliseconds. */
  readonly timeout: number;
  /** Gives up the attempt. Has no effect on an established connection. */
  readonly signal: AbortSignal;
}

export interface PacketServerLink {
  readonly serverId: string;
  /** The number of servers, as this one reports it. */
  readonly serverCount: number;
  readonly channel: PacketChannel;
}

/**
 * Connects an agent to a Go server on a connection of its own, because many servers may be behind one address. Throws an Error that
 * says why the server did not accept it, or a ChannelError if the connection or the server failed.
 */
export function connectPackets(options: ConnectPacketsOptions): Promise<PacketServerLink> {
  const { target, timeout, signal } = options;
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const { proxy, address = target } = options;
    const client = new Client(proxy ? formatDestination(proxy) : address, credentialsOf(options), {
      'grpc.default_authority': target,
      'grpc.max_receive_message_length': WIRE.messageBytes,
      'grpc.max_send_message_length': -1,
      ...keepaliveOptions(options.keepaliveMs),
      'grpc.keepalive_permit_without_calls': 1,
      'grpc-node.flow_control_window': STREAM_WINDOW,
      'grpc.use_local_subchannel_pool': 1,
      'grpc.service_config_disable_resolution': 1,
      'grpc.enable_retries': 0,
      'grpc.enable_channelz': 0,
      // Its rules are not Go's, and its proxies have no deadline.
      'grpc.enable_http_proxy': 0,
    });
    const call = open(client, options);
    const channel = clientChannel(call, target);
    call.once('status', () => client.close());
    const settle = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', abandon);
      call.off('metadata', admitted);
      call.off('error', refused);
    };
    const fail = (error: Error) => {
      settle();
      channel.destroy(error);
      reject(error);
    };
    const refused = (error: ServiceError) => fail(callError(error));
    const abandon = () => fail(new Error(`connection attempt to ${target} abandoned`));
    const admitted = (metadata: Metadata) => {
      try {
        const link = { ...readAnswer(metadata), channel };
        settle();
        resolve(link);
      } catch (error) {
        fail(error as Error);
      }
    };
    const timer = setTimeout(() => fail(new Error(`no answer from ${target} within ${timeout} ms`)), timeout);
    signal.addEventListener('abort', abandon, { once: true });
    call.once('metadata', admitted);
    call.once('error', refused);
  });
}

/** grpc-js connects to the server or its proxy, and hands us the socket, which we lead on to the server. */
function credentialsOf({ target, tls, proxy, timeout, signal }: ConnectPacketsOptions): ChannelCredentials {
  const trust = tls && clientTlsOf(tls);
  const host = hostOf(target);
  return credentialsBy(async (raw) => {
    const below = proxy ? await askProxy(raw, proxy, parseDestination(target), { timeout, signal }) : keptAlive(raw);
    if (!trust) return below;
    const named = isIP(host) === 0 && { servername: host };
    const socket = connectTls({ socket: below, ALPNProtocols: ['h2'], ...named }, trust, [host]);
    await secured(socket);
    return socket;
  }, trust !== undefined);
}

function hostOf(target: string): string {
  return target.slice(0, target.lastIndexOf(':')).replace(/^\[|\]$/g, '');
}

function open(client: Client, options: ConnectPacketsOptions): ClientDuplexStream<Packet, Received> {
  const { agentId, identifiers, token } = options;
  const metadata = new Metadata();
  try {
    metadata.set('agentid', agentId);
    metadata.set('agentidentifiers', identifiers);
    if (token !== undefined) metadata.set('authorization', `Bearer ${token}`);
    return client.makeBidiStreamRequest(CONNECT_METHOD, encodePacket, receivePacket, metadata);
  } catch (error) {
    client.close();
    throw error;
  }
}

function readAnswer(metadata: Metadata): { serverId: string; serverCount: number } {
  const serverId = checkName('server ID', exactlyOne(metadata, 'serverid', 'server ID'));
  const count = exactlyOne(metadata, 'servercount', 'server count');
  if (!/^\d{1,9}$/.test(count)) throw new Error(`server count is not a number: ${JSON.stringify(count)}`);
  return { serverId, serverCount: Number(count) };
}

function exactlyOne(metadata: Metadata, key: string, what: string): string {
  const values = metadata.get(key);
  if (values.length !== 1) throw new Error(`expected one ${what} in the server's answer, got ${values.length}`);
  return String(values[0]);
}
