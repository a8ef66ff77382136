import type { Socket } from 'node:net';
import {
  type AgentHello,
  agentService,
  fromTheStart,
  type GrpcServer,
  grpcServer,
  type HubHello,
  LinkClient,
  LinkRefused,
  type ListenAddress,
  type Listener,
  listen,
  type PacketAgent,
  packetDialer,
  parseIdentifiers,
  remoteOf,
  type TlsSettings,
  upgradeServer,
} from '@isthmus/transport';
import type { Observation } from '@isthmus/tunnel';
import { Membership } from './membership.ts';
import { newSessionId, type SessionTable } from './sessions.ts';

/** How long a token's check may take, in milliseconds. */
const AUTHENTICATE_TIMEOUT = 10_000;

/**
 * How long an agent may take for its TLS handshake, in milliseconds. Longer than agents wait for ours: when thousands come at
 * once, those that still wait must not be sent away to begin anew.
 */
const HANDSHAKE_TIMEOUT = 60_000;

/** What a Go agent may send ahead on its one stream, in bytes. */
const GO_AGENT_WINDOW = 16 * 1024 * 1024;

/** Streams of one connection: each has its window before its token was looked at. */
const GO_AGENT_STREAMS = 4;

/** How long Go agents may take to go away, in milliseconds: upstream's server drops them within 0.4 s. */
const GO_AGENT_GRACE = 300;

export interface AgentPortOptions {
  readonly hubId: string;
  /** Where agents connect. Without TLS only where something in front ends it. */
  readonly agents: { readonly address: ListenAddress; readonly tls?: TlsSettings };
  /** The plane's name; empty for a hub that shares none. */
  readonly plane: string;
  /** What agents are told instead of the number of live hubs. */
  readonly serverCount?: number;
  /** Keepalive of Go agents' connections, in milliseconds. */
  readonly keepaliveTime: number;
  /** Rejects for a service account token that does not hold; unset where certificates alone decide. */
  readonly authenticate?: (token: string, signal: AbortSignal) => Promise<void>;
  readonly observation: Observation;
}

/** Where agents connect: our agents' links and Go agents' packet streams, told apart by the first bytes. */
export class AgentPort {
  /** What agents are told of the plane's hubs. */
  readonly membership = new Membership();
  readonly #options: AgentPortOptions;
  readonly #sessions: SessionTable;
  #listener: Listener | undefined;
  #grpc: GrpcServer | undefined;

  constructor(options: AgentPortOptions, sessions: SessionTable) {
    this.#options = options;
    this.#sessions = sessions;
  }

  get address(): string {
    return this.#listener?.address ?? '';
  }

  async start(): Promise<void> {
    const { agents, observation } = this.#options;
    const { events } = observation;
    const upgrades = upgradeServer({
      admit: (hello) => this.#admit(hello),
      open: (socket, hello, answer) => this.#open(socket, hello, answer),
      refused: (socket, error) => events.emit('refused', 'agents', remoteOf(socket), error),
    });
    const grpc = this.#goAgents();
    this.#grpc = grpc;
    this.#listener = await listen({
      ...agents,
      name: 'agents',
      handshakeTimeout: HANDSHAKE_TIMEOUT,
      events,
      http1: fromTheStart((socket) => upgrades.accept(socket)),
      http2: (socket, first) => grpc.accept(socket, first),
    });
  }

  /** Takes no new agent. */
  async stop(): Promise<void> {
    await this.#listener?.stop();
  }

  async close(): Promise<void> {
    this.membership.close();
    await this.#grpc?.close(GO_AGENT_GRACE);
    await this.#listener?.close();
  }

  #goAgents(): GrpcServer {
    const { hubId: serverId, observation, keepaliveTime: keepaliveMs, authenticate } = this.#options;
    const { events } = observation;
    const service = agentService({
      ...{ serverId, events, onAgent: (agent) => this.#openPackets(agent) },
      serverCount: () => this.#serverCount(),
      ...(authenticate && { authenticate }),
    });
    const limits = { streamWindow: GO_AGENT_WINDOW, maxStreams: GO_AGENT_STREAMS };
    return grpcServer({ services: [service], events, name: 'agents', keepaliveMs, ...limits });
  }

  #openPackets({ agentId, identifiers, peer, channel }: PacketAgent): void {
    const { hubId, observation } = this.#options;
    const sessionId = newSessionId();
    const drain = () => this.#sessions.drain(sessionId);
    const dialer = packetDialer(channel, { ...{ agentId, sessionId, hubId, drain }, events: observation.events });
    // A Go agent cannot say which tenant it is of.
    const identity = { tenant: 'default', agentId, identifiers, protocol: 'packets' as const, remote: peer.remote };
    this.#sessions.add(sessionId, identity, dialer);
  }

  /** How many servers an agent should look for: the override, or the plane's live hubs. */
  #serverCount(): number {
    return this.#options.serverCount ?? Math.max(1, this.membership.live);
  }

  async #admit(hello: AgentHello): Promise<HubHello> {
    const { hubId, plane } = this.#options;
    await this.#authenticate(hello.token);
    try {
      parseIdentifiers(hello.identifiers);
    } catch (error) {
      throw new LinkRefused(400, (error as Error).message);
    }
    return { hubId, sessionId: newSessionId(), plane, serverCount: this.#serverCount() };
  }

  async #authenticate(token: string | undefined): Promise<void> {
    const { authenticate } = this.#options;
    if (!authenticate) return;
    if (token === undefined) throw new LinkRefused(401, 'this hub wants a service account token');
    try {
      await authenticate(token, AbortSignal.timeout(AUTHENTICATE_TIMEOUT));
    } catch (error) {
      throw new LinkRefused(403, `token was not accepted: ${(error as Error).message}`);
    }
  }

  #open(socket: Socket, hello: AgentHello, { sessionId }: HubHello): void {
    const { tenant, agentId } = hello;
    const { events } = this.#options.observation;
    const link = new LinkClient({
      socket,
      peer: `agent ${agentId}`,
      orphaned: () => events.emit('tunnel:orphaned', 'hub'),
      refused: (error) => events.emit('refused', 'agents', `agent ${agentId}`, error),
      receive: ({ type }) => {
        if (type === 'drain') this.#sessions.drain(sessionId);
      },
    });
    const quit = this.membership.add(link);
    void link.closed.then(quit);
    const identifiers = parseIdentifiers(hello.identifiers);
    const identity = { tenant, agentId, identifiers, protocol: 'link' as const, remote: remoteOf(socket) };
    this.#sessions.add(sessionId, identity, link);
  }
}
