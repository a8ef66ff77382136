import { readFileSync } from 'node:fs';
import { Metadata, Server, ServerCredentials, type ServerDuplexStream } from '@grpc/grpc-js';
import type { IdentityOptions } from '@isthmus/certificates/testing';
import { decodePacket, encodePacket, type Packet, type PacketType } from '@isthmus/proto';
import { until } from '@isthmus/runtime/testing';
import type { PacketOf } from './grpc-caller.ts';
import type { Scope } from './scope.ts';
import type { Trust } from './trust.ts';

const SERVICE = {
  Connect: {
    path: '/AgentService/Connect',
    requestStream: true,
    responseStream: true,
    requestSerialize: encodePacket,
    requestDeserialize: decodePacket,
    responseSerialize: encodePacket,
    responseDeserialize: decodePacket,
  },
} as const;

/** One agent's stream at a `PacketHub`. */
export class AgentStream {
  readonly metadata: Metadata;
  readonly received: Packet[] = [];
  ended = false;
  readonly #call: ServerDuplexStream<Packet, Packet>;

  constructor(call: ServerDuplexStream<Packet, Packet>) {
    this.#call = call;
    this.metadata = call.metadata;
    call.on('data', (packet: Packet) => this.received.push(packet));
    for (const event of ['end', 'cancelled', 'error']) {
      call.on(event, () => {
        this.ended = true;
      });
    }
  }

  send(packet: Packet): void {
    this.#call.write(packet);
  }

  /** Returns the first packet of a type for which `matches` holds, once there is one. Fails at the deadline. */
  expect<T extends PacketType>(type: T, matches: (packet: PacketOf<T>) => boolean = () => true): Promise<PacketOf<T>> {
    const find = () => this.received.find((packet) => packet.type === type && matches(packet as PacketOf<T>));
    const what = () =>
      `a ${type} of the agent; received: ${this.received.map((packet) => packet.type).join(' ') || 'none'}`;
    return until(find, { what }) as Promise<PacketOf<T>>;
  }
}

/** A server for ANP's agents that does nothing by itself: the test sends each packet. TLS with the agents' authority. */
export class PacketHub implements AsyncDisposable {
  readonly streams: AgentStream[] = [];
  port = 0;
  readonly #server = new Server();

  constructor(serverId: string, serverCount = 1) {
    this.#server.addService(SERVICE, {
      Connect: (call: ServerDuplexStream<Packet, Packet>) => {
        const metadata = new Metadata();
        metadata.set('serverid', serverId);
        metadata.set('servercount', String(serverCount));
        call.sendMetadata(metadata);
        this.streams.push(new AgentStream(call));
      },
    });
  }

  async listen(trust: Trust, options: IdentityOptions = {}): Promise<this> {
    const { cert, key } = await trust.agents.server(options);
    const pair = { private_key: readFileSync(key), cert_chain: readFileSync(cert) };
    const credentials = ServerCredentials.createSsl(readFileSync(trust.agents.cert), [pair], true);
    this.port = await new Promise((resolve, reject) => {
      this.#server.bindAsync('127.0.0.1:0', credentials, (error, port) => (error ? reject(error) : resolve(port)));
    });
    return this;
  }

  /** The stream of an agent, once it has connected. */
  agent(index = 0): Promise<AgentStream> {
    return until(() => this.streams[index], { what: `agent ${index} to connect` });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.forceShutdown();
  }
}

/** @param options of its certificate */
export async function packetHub(
  scope: Scope,
  trust: Trust,
  serverId: string,
  options?: IdentityOptions,
): Promise<PacketHub> {
  return scope.use(await new PacketHub(serverId).listen(trust, options));
}
