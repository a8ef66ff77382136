import type { Socket } from 'node:net';
import { guarding, remoteOf, type StrangerLimits, sourceOf, type TlsSettings } from '@isthmus/runtime';
import {
  type AgentHello,
  AgentLimitError,
  type Authenticate,
  agentService,
  fromTheStart,
  type GrpcServer,
  grpcServer,
  type HubHello,
  type IdentifierLimits,
  LinkClient,
  LinkRefused,
  type ListenAddress,
  type Listener,
  listen,
  type PacketAgent,
  packetDialer,
  parseIdentifiers,
  refusedWhere,
  upgradeServer,
} from '@isthmus/transport';
import type { Observation } from '@isthmus/tunnel';
import { Membership } from './membership.ts';
import { newSessionId, type SessionTable } from './sessions.ts';

/**
 * How long an agent may take for its TLS handshake, in milliseconds. Longer than agents wait: when thousands connect at once, a hub
 * must not disconnect those that still wait, because they would start over.
 */
const HANDSHAKE_TIMEOUT = 60_000;

/**
 * How long a connection may take until its agent is admitted, in milliseconds: the handshake, then 10 s each for the first bytes, the
 * request and the token review.
 */
const ADMISSION_TIMEOUT = HANDSHAKE_TIMEOUT + 30_000;

/** Window of a Go agent's only stream, in bytes. */
const GO_AGENT_WINDOW = 16 * 1024 * 1024;

/** Streams of one connection. */
const GO_AGENT_STREAMS = 4;

/** Window in bytes and streams of a gRPC connection until its agent is admitted: nothing reads it before. */
const STRANGERS = { streamWindow: 64 * 1024, maxStreams: 1 };

/** A Go agent cannot name its tenant. */
const GO_AGENT_TENANT = 'default';

/** How long Go agents may take to disconnect, in milliseconds. Upstream's server drops them within 0.4 s. */
const GO_AGENT_GRACE = 300;

export interface AgentPortOptions {
  readonly hubId: string;
  /** Where agents connect. Unset TLS: a proxy in front terminates it. */
  readonly agents: { readonly address: ListenAddress; readonly tls?: TlsSettings };
  /** The plane's name; empty for a hub that shares none. */
  readonly plane: string;
  /** Server count for agents. Default: the number of live hubs. */
  readonly serverCount?: number;
  /** Keepalive of Go agents' connections, in milliseconds. */
  readonly keepaliveTime: number;
  /** For service account tokens; unset where certificates alone decide. */
  readonly authenticate?: Authenticate;
  readonly limits: AgentLimits;
  readonly observation: Observation;
}

/** Limits of agents, and of connections that are not admitted yet. */
export interface AgentLimits extends IdentifierLimits {
  /** Sessions of one agent at this hub. */
  readonly sessions: number;
  /** Connections that wait to be admitted: in total, and from one source address. */
  readonly waiting: number;
  readonly waitingOfSource: number;
}

/** Where agents connect: our agents' links and Go agents' packet streams, told apart by the first bytes. */
export class AgentPort {
  /** Tells agents about the plane's hubs. */
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
      admit: (hello, socket) => this.#admit(hello, socket),
      open: (socket, hello, answer) => this.#open(socket, hello, answer),
      refused: (socket, error) => events.emit('refused', refusedWhere(error, 'agents'), remoteOf(socket), error),
      fault: (socket, error) => events.emit('fault', 'agents', remoteOf(socket), error),
    });
    const grpc = this.#goAgents();
    this.#grpc = grpc;
    this.#listener = await listen({
      ...agents,
      name: 'agents',
      handshakeTimeout: HANDSHAKE_TIMEOUT,
      strangers: this.#strangers(),
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

  #strangers(): StrangerLimits {
    const { waiting: most, waitingOfSource: mostOfSource } = this.#options.limits;
    const names = { most: '--max-waiting-agents', mostOfSource: '--max-waiting-agents-per-source' };
    return { most, mostOfSource, names, deadlineMs: ADMISSION_TIMEOUT };
  }

  /** @throws AgentLimitError if the agent has its maximum of sessions */
  #checkRoom(tenant: string, agentId: string): void {
    const { sessions } = this.#options.limits;
    if (this.#sessions.ofAgent({ tenant, agentId }) < sessions) return;
    const text = `agent ${agentId} has ${sessions} sessions here already: --max-agent-sessions`;
    throw new AgentLimitError('agent sessions', text);
  }

  #goAgents(): GrpcServer {
    const { hubId: serverId, observation, keepaliveTime: keepaliveMs, authenticate, limits } = this.#options;
    const { events } = observation;
    const service = agentService({
      serverId,
      events,
      onAgent: (agent) => this.#openPackets(agent),
      serverCount: () => this.#serverCount(),
      identifierLimits: limits,
      checkRoom: (agentId) => this.#checkRoom(GO_AGENT_TENANT, agentId),
      ...(authenticate && { authenticate }),
    });
    const windows = { streamWindow: GO_AGENT_WINDOW, maxStreams: GO_AGENT_STREAMS, strangers: STRANGERS };
    return grpcServer({ services: [service], events, name: 'agents', keepaliveMs, ...windows });
  }

  #openPackets({ agentId, identifiers, peer, channel }: PacketAgent): void {
    const { hubId, observation } = this.#options;
    this.#listener?.strangers.leave(peer.socket);
    const sessionId = newSessionId();
    const drain = () => this.#sessions.drain(sessionId);
    const dialer = packetDialer(channel, { agentId, sessionId, hubId, drain, events: observation.events });
    const identity = {
      tenant: GO_AGENT_TENANT,
      agentId,
      identifiers,
      protocol: 'packets' as const,
      remote: peer.remote,
    };
    this.#sessions.add(sessionId, identity, dialer);
  }

  /** Returns how many servers an agent should connect to. */
  #serverCount(): number {
    return this.#options.serverCount ?? Math.max(1, this.membership.live);
  }

  /** Checks the cheap conditions first: a token review asks the API server. */
  async #admit({ tenant, agentId, identifiers, token }: AgentHello, socket: Socket): Promise<HubHello> {
    const { hubId, plane, limits } = this.#options;
    try {
      parseIdentifiers(identifiers, limits);
    } catch (error) {
      if (error instanceof AgentLimitError) throw error;
      throw new LinkRefused(400, (error as Error).message);
    }
    this.#checkRoom(tenant, agentId);
    await this.#authenticate(token, socket);
    this.#checkRoom(tenant, agentId);
    return { hubId, sessionId: newSessionId(), plane, serverCount: this.#serverCount() };
  }

  async #authenticate(token: string | undefined, socket: Socket): Promise<void> {
    const { authenticate } = this.#options;
    if (!authenticate) return;
    if (token === undefined) throw new LinkRefused(401, 'this hub wants a service account token');
    const gone = new AbortController();
    socket.once('close', () => gone.abort());
    const source = sourceOf(socket.remoteAddress ?? '');
    try {
      await authenticate(token, { source, signal: gone.signal });
    } catch (error) {
      if (error instanceof AgentLimitError) throw error;
      throw new LinkRefused(403, `token was not accepted: ${(error as Error).message}`);
    }
  }

  #open(socket: Socket, hello: AgentHello, { sessionId }: HubHello): void {
    const { tenant, agentId } = hello;
    const { events } = this.#options.observation;
    // The agent may have opened other sessions meanwhile.
    this.#checkRoom(tenant, agentId);
    this.#listener?.strangers.leave(socket);
    const fault = (error: Error) => void events.emit('fault', 'agents', `agent ${agentId}`, error);
    const link = new LinkClient({
      socket,
      peer: `agent ${agentId}`,
      orphaned: () => events.emit('tunnel:orphaned', 'hub'),
      fault,
      refused: (error) => events.emit('refused', 'agents', `agent ${agentId}`, error),
      receive: ({ type }) => {
        if (type === 'drain') this.#sessions.drain(sessionId);
      },
    });
    const quit = this.membership.add(link);
    void link.closed.then(guarding(fault)(quit));
    const identifiers = parseIdentifiers(hello.identifiers);
    const identity = { tenant, agentId, identifiers, protocol: 'link' as const, remote: remoteOf(socket) };
    this.#sessions.add(sessionId, identity, link);
  }
}
