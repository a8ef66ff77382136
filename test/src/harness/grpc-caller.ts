import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Duplex } from 'node:stream';
import { Client, type ClientDuplexStream, credentials, Metadata, type StatusObject } from '@grpc/grpc-js';
import { decodePacket, encodePacket, type Packet, type PacketType } from '@isthmus/proto';
import { until } from '@isthmus/runtime/testing';
import { describe, type Via } from './connect-caller.ts';
import type { Scope } from './scope.ts';

export type PacketOf<T extends PacketType> = Extract<Packet, { readonly type: T }>;

/** One `ProxyService.Proxy` stream, packet by packet, on its own connection. */
export class PacketStream implements AsyncDisposable {
  readonly received: Packet[] = [];
  /** How the stream ended, once it has. */
  status: StatusObject | undefined;
  /** The initial metadata of the other side, once it has arrived. */
  metadata: Metadata | undefined;
  readonly stream: ClientDuplexStream<Packet, Packet>;
  readonly #client: Client;
  #taken = 0;
  readonly #keep = (packet: Packet) => void this.received.push(packet);

  constructor(via: Via, method = '/ProxyService/Proxy', metadata = new Metadata()) {
    this.#client = new Client(target(via), security(via), {
      'grpc.use_local_subchannel_pool': 1,
      'grpc.ssl_target_name_override': ('ca' in via && via.serverName) || 'localhost',
    });
    this.stream = this.#client.makeBidiStreamRequest(method, encodePacket, decodePacket, metadata);
    this.stream.on('data', this.#keep);
    this.stream.on('metadata', (metadata: Metadata) => {
      this.metadata = metadata;
    });
    this.stream.on('status', (status: StatusObject) => {
      this.status = status;
    });
    this.stream.on('error', () => {});
  }

  send(packet: Packet): void {
    this.stream.write(packet);
  }

  /** Returns the next packet that was not taken yet. Fails if the stream ends first. */
  async next(deadline?: number): Promise<Packet> {
    await until(() => this.received.length > this.#taken, {
      ...(deadline && { deadline }),
      what: () => `packet ${this.#taken + 1}; received: ${this.received.map(({ type }) => type).join(' ') || 'none'}`,
      hopeless: () => this.status && `the stream ended: ${this.status.code} ${this.status.details}`,
    });
    return this.received[this.#taken++] as Packet;
  }

  /** Returns the next packet, which must be of this type. */
  async expect<T extends PacketType>(type: T, deadline?: number): Promise<PacketOf<T>> {
    const packet = await this.next(deadline);
    if (packet.type !== type) throw new Error(`expected ${type}, got ${show(packet)}`);
    return packet as PacketOf<T>;
  }

  /** Waits for the end of the stream. */
  async ended(deadline?: number): Promise<StatusObject> {
    return until(() => this.status, { ...(deadline && { deadline }), what: 'the end of the stream' });
  }

  /** Sends DIAL_REQ and returns the answer. */
  async dial(destination: string, random = randomId()): Promise<PacketOf<'DIAL_RSP'>> {
    this.send({ type: 'DIAL_REQ', protocol: 'tcp', address: destination, random });
    return this.expect('DIAL_RSP');
  }

  /** From now on, passes packets to `listener` instead of keeping them. */
  handOver(listener: (packet: Packet) => void): void {
    this.stream.off('data', this.#keep).on('data', listener);
    for (const packet of this.received.splice(this.#taken)) listener(packet);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.stream.cancel();
    this.#client.close();
  }
}

export function packetsThrough(scope: Scope, via: Via, metadata?: Metadata): PacketStream {
  return scope.use(new PacketStream(via, '/ProxyService/Proxy', metadata));
}

/** A stream of `AgentService.Connect`: an agent whose every packet the test sends. */
export function agentPackets(
  scope: Scope,
  via: Via,
  metadata: Readonly<Record<string, string | string[]>>,
): PacketStream {
  const sent = new Metadata();
  for (const [name, values] of Object.entries(metadata)) for (const value of [values].flat()) sent.add(name, value);
  return scope.use(new PacketStream(via, '/AgentService/Connect', sent));
}

/** A positive 63-bit number, as Go's callers draw them. */
export function randomId(): bigint {
  return randomBytes(8).readBigUInt64BE() >> 1n;
}

/** Dials as an API server does over gRPC: with its own connection and stream. Throws an error with the text of the DIAL_RSP. */
export async function grpcThrough(scope: Scope, via: Via, destination: string): Promise<Duplex> {
  const packets = packetsThrough(scope, via);
  const answer = await packets.dial(destination);
  if (answer.error) throw new Error(answer.error);
  const tunnel = new PacketTunnel(packets, answer.connectID);
  scope.defer(() => tunnel.destroy());
  return tunnel;
}

/** The caller's end of a tunnel over packets. There is no half-close: `end()` sends CLOSE_REQ. */
class PacketTunnel extends Duplex {
  readonly #stream: ClientDuplexStream<Packet, Packet>;
  readonly #connectID: bigint;
  #ended = false;

  constructor(packets: PacketStream, connectID: bigint) {
    super({ allowHalfOpen: true });
    this.#connectID = connectID;
    this.on('error', () => {});
    this.#stream = packets.stream;
    packets.handOver((packet) => this.#take(packet));
    // With status 0, packets may still wait for a paused reader, the CLOSE_RSP among them; `end` comes after them.
    let status = 'no status';
    const cut = () => {
      if (!this.#ended) this.destroy(new Error(`the stream ended: ${status}`));
    };
    this.#stream.on('status', ({ code, details }: StatusObject) => {
      status = `${code} ${details}`;
      if (code !== 0 || this.#stream.readableEnded) cut();
    });
    this.#stream.on('end', cut);
  }

  #take(packet: Packet): void {
    if (packet.type === 'DATA') {
      if (!this.push(packet.data)) this.#stream.pause();
    } else if (packet.type === 'CLOSE_RSP') {
      this.#ended = true;
      if (packet.error) this.destroy(new Error(packet.error));
      else this.push(null);
    }
  }

  override _read(): void {
    this.#stream.resume();
  }

  override _write(data: Buffer, _encoding: string, done: () => void): void {
    this.#stream.write({ type: 'DATA', connectID: this.#connectID, error: '', data }, done);
  }

  override _final(done: () => void): void {
    this.#stream.write({ type: 'CLOSE_REQ', connectID: this.#connectID }, done);
  }

  /** Before the CLOSE_RSP, this plays a caller that vanishes. */
  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    if (!this.#ended) this.#stream.cancel();
    done(error);
  }
}

function target(via: Via): string {
  return 'uds' in via ? `unix://${via.uds}` : describe(via);
}

function security(via: Via) {
  if (!('ca' in via)) return credentials.createInsecure();
  const { ca, identity } = via;
  if (!identity) return credentials.createSsl(readFileSync(ca));
  return credentials.createSsl(readFileSync(ca), readFileSync(identity.key), readFileSync(identity.cert));
}

function show(packet: Packet): string {
  return JSON.stringify(packet, (_key, value) => (typeof value === 'bigint' ? `${value}` : value));
}
