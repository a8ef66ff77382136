import { isIP, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import {
  ChannelCredentials,
  type ChannelOptions,
  Client,
  type ClientDuplexStream,
  Metadata,
  type ServiceError,
} from '@grpc/grpc-js';
import { decodePacket, encodePacket, type Packet, type PacketError } from '@isthmus/proto';
import { clientTlsOf, connectTls, keptAlive, LONGEST_TIMER, secured, type TlsSettings } from '@isthmus/runtime';
import { checkName, formatDestination, inWords as messageOf, parseDestination } from '@isthmus/tunnel';
import { ChannelError, type PacketChannel, type PacketSink, statusName, WIRE } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import { askProxy, type HttpProxy } from '../http-proxy.ts';
import { CONNECT_METHOD } from '../packets/channel.ts';
import { inWords } from '../tls/admit.ts';

/** A received message. Bytes that are no packet arrive as the error, so that it can be reported. */
type Received = Packet | PacketError;

export function receivePacket(bytes: Buffer): Received {
  try {
    return decodePacket(bytes);
  } catch (error) {
    return error as PacketError;
  }
}

/** Our stream at a Go server, on grpc-js. */
class ClientChannel implements PacketChannel {
  readonly remote: string;
  readonly #call: ClientDuplexStream<Packet, Received>;
  /** grpc-js's calls are Duplexes of Node. Its types leave out what it does not document. */
  readonly #stream: Duplex;
  #sink: PacketSink | undefined;
  /** Set once it is closed. */
  #closed: { readonly error: ChannelError | undefined } | undefined;
  #ended = false;
  #held = 0;
  /** Bytes that grpc-js has and the socket has not. */
  #unsent = 0;
  /** Somebody waits for `drain`. */
  #full = false;

  constructor(call: ClientDuplexStream<Packet, Received>, remote: string) {
    this.#call = call;
    this.#stream = call as unknown as Duplex;
    this.remote = remote;
    call.on('error', (error: ServiceError) => this.#close(callError(error)));
    this.#stream.on('end', () => {
      // ANP's peers treat the end of one direction as the end of both.
      this.end();
      this.#close();
    });
  }

  start(sink: PacketSink): void {
    this.#sink = sink;
    if (this.#closed) {
      sink.close(this.#closed.error);
      return;
    }
    this.#stream.on('data', (received: Received) => {
      if (this.#closed) return;
      if (received instanceof Error)
        this.destroy(new ChannelError('InvalidArgument', `bad packet: ${received.message}`));
      else sink.packet(received);
    });
  }

  send(packet: Packet): boolean {
    if (this.#ended || this.#closed) return true;
    const bytes = packet.type === 'DATA' ? packet.data.length : 0;
    this.#unsent += bytes;
    const room = this.#stream.write(packet, () => this.#sent(bytes));
    this.#full = !room || this.#unsent >= TRANSPORT.packetsSentAheadBytes;
    return !this.#full;
  }

  #sent(bytes: number): void {
    this.#unsent -= bytes;
    if (!this.#full || this.#unsent >= TRANSPORT.packetsSentAheadBytes || this.#stream.writableNeedDrain) return;
    this.#full = false;
    this.#sink?.drain();
  }

  pause(): void {
    if (!this.#closed) this.#stream.pause();
  }

  resume(): void {
    if (!this.#closed) this.#stream.resume();
  }

  hold(bytes: number): void {
    const before = this.heldUp;
    this.#held += bytes;
    if (this.heldUp && !before) this.pause();
  }

  free(bytes: number): void {
    const before = this.heldUp;
    this.#held -= bytes;
    if (before && !this.heldUp) this.resume();
  }

  get heldUp(): boolean {
    return this.#held >= TRANSPORT.packetsHeldBytes;
  }

  get over(): boolean {
    return this.#closed !== undefined;
  }

  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#stream.end();
  }

  destroy(reason: Error): void {
    if (this.#closed) return;
    this.#ended = true;
    this.#call.cancel();
    this.#close(
      reason instanceof ChannelError ? reason : new ChannelError('Canceled', reason.message, { cause: reason }),
    );
  }

  /** The stream is over. */
  #close(error?: ChannelError): void {
    if (this.#closed) return;
    this.#closed = { error };
    // What still arrives is read and dropped, or the stream would never end.
    this.#stream.resume();
    this.#sink?.close(error);
  }
}

export function clientChannel(call: ClientDuplexStream<Packet, Received>, remote: string): PacketChannel {
  return new ClientChannel(call, remote);
}

function callError(error: ServiceError): ChannelError {
  const told = inWords(error);
  const text = told === error ? messageOf(error.details) : told.message;
  return new ChannelError(statusName(error.code), text, { cause: error });
}

type Connector = ReturnType<ChannelCredentials['_createSecureConnector']>;

/**
 * Credentials of a channel whose handshakes are ours. grpc-js can ask a proxy and connect over TLS by itself, but not a proxy over TLS, not
 * within a deadline, and it judges a server's certificate by OpenSSL's rules.
 * @param lead takes a connected socket on to the server, and returns the one to speak HTTP/2 on
 */
function credentialsBy(lead: (raw: Socket) => Promise<Socket>, secure: boolean): ChannelCredentials {
  return new ConnectionCredentials(lead, secure);
}

class ConnectionCredentials extends ChannelCredentials {
  readonly #lead: (raw: Socket) => Promise<Socket>;
  readonly #secure: boolean;

  constructor(lead: (raw: Socket) => Promise<Socket>, secure: boolean) {
    super();
    this.#lead = lead;
    this.#secure = secure;
  }

  override _isSecure(): boolean {
    return this.#secure;
  }

  override _equals(other: ChannelCredentials): boolean {
    return other === this;
  }

  override _createSecureConnector(...of: Parameters<ChannelCredentials['_createSecureConnector']>): Connector {
    const plain = ChannelCredentials.createInsecure()._createSecureConnector(...of);
    return {
      connect: async (raw) => ({ socket: await this.#lead(raw), secure: this.#secure }),
      waitForReady: () => plain.waitForReady(),
      getCallCredentials: () => plain.getCallCredentials(),
      destroy: () => plain.destroy(),
    };
  }
}

/** @param keepaliveMs how long a connection may be silent before it is pinged, in milliseconds */
function keepaliveOptions(keepaliveMs: number): ChannelOptions {
  return {
    'grpc.keepalive_time_ms': Math.min(keepaliveMs, LONGEST_TIMER),
    'grpc.keepalive_timeout_ms': TRANSPORT.packetsPingTimeoutMs,
  };
}

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
      'grpc-node.flow_control_window': TRANSPORT.packetsStreamWindowBytes,
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
