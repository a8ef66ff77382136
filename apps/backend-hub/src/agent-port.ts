import type { Socket } from 'node:net';
import { guarding, remoteOf } from '@isthmus/runtime';
import {
  type AgentHello,
  agentService,
  DEFAULT_TENANT,
  type Dialer,
  type GrpcServer,
  grpcServer,
  type HubHello,
  ignoredError,
  LinkClient,
  type PacketAgent,
  packetDialer,
  parseIdentifiers,
  pingAtRest,
  refusedWhere,
  upgradeServer,
} from '@isthmus/transport';
import type { DialRequest, Observation } from '@isthmus/tunnel';
import { type AdmittedAgent, AgentAdmission, type AgentAdmissionOptions } from './agent-admission.ts';
import { AgentListeners, type AgentListenersOptions } from './agent-listeners.ts';
import { Membership } from './membership.ts';
import { Policies } from './policies.ts';
import { SessionStanding } from './session-standing.ts';
import { type AgentIdentity, newSessionId, type SessionTable } from './sessions.ts';

/** Window of a Go agent's only stream, in bytes. */
const GO_AGENT_WINDOW = 16 * 1024 * 1024;

/** Streams of one connection. */
const GO_AGENT_STREAMS = 4;

/** Window in bytes and streams of a gRPC connection until its agent is admitted: nothing reads it before. */
const STRANGERS = { streamWindow: 64 * 1024, maxStreams: 1 };

/** How long Go agents may take to disconnect, in milliseconds. Upstream's server drops them within 0.4 s. */
const GO_AGENT_GRACE = 300;

export interface AgentPortOptions extends AgentAdmissionOptions, AgentListenersOptions {
  readonly hubId: string;
  /** The plane's name; empty for a hub that shares none. */
  readonly plane: string;
  /** Server count for agents. Default: the number of live hubs. */
  readonly serverCount?: number;
  /** Keepalive of Go agents' connections, in milliseconds. */
  readonly keepaliveTime: number;
  readonly limits: AgentAdmissionOptions['limits'] & AgentListenersOptions['limits'];
  readonly observation: Observation;
}

/** What a link's agent is told, and who it is. */
type Welcome = HubHello & AdmittedAgent;

/** Where agents connect: our agents' links and Go agents' packet streams, told apart by the first bytes. */
export class AgentPort {
  /** Tells agents about the plane's hubs. */
  readonly membership = new Membership();
  readonly #options: AgentPortOptions;
  readonly #sessions: SessionTable;
  readonly #admission: AgentAdmission;
  readonly #policies = new Policies();
  readonly #listeners: AgentListeners;
  #grpc: GrpcServer | undefined;
  #unwatch = () => {};

  constructor(options: AgentPortOptions, sessions: SessionTable) {
    this.#options = options;
    this.#listeners = new AgentListeners(options);
    this.#sessions = sessions;
    this.#admission = new AgentAdmission(options, sessions, (socket) => this.#listeners.portOf(socket));
  }

  /** Sessions of a tenant that were renewed in the last full second. */
  renewals(tenant: string): number {
    return this.#admission.renewals(tenant);
  }

  get address(): string {
    return this.#listeners.address;
  }

  /** Why tenants' own ports cannot be opened. */
  get unopened(): readonly string[] {
    return this.#listeners.unopened;
  }

  async start(): Promise<void> {
    const { observation, tenancy } = this.#options;
    const { events } = observation;
    const upgrades = upgradeServer<Welcome>({
      admit: (hello, socket) => this.#admit(hello, socket),
      open: (socket, hello, answer) => this.#open(socket, hello, answer),
      refused: (socket, error) => events.emit('refused', refusedWhere(error, 'agents'), remoteOf(socket), error),
      fault: (socket, error) => events.emit('fault', 'agents', remoteOf(socket), error),
    });
    const grpc = this.#goAgents();
    this.#grpc = grpc;
    if (tenancy)
      this.#unwatch = tenancy.changed(({ changed }) => {
        for (const name of changed) this.#policies.renew(tenancy.tenants.get(name));
      });
    await this.#listeners.start({
      link: (socket) => upgrades.accept(socket),
      packets: (socket, first) => grpc.accept(socket, first),
    });
  }

  /** Takes no new agent. */
  async stop(): Promise<void> {
    this.#unwatch();
    await this.#listeners.stop();
  }

  async close(): Promise<void> {
    this.#unwatch();
    this.membership.close();
    await this.#grpc?.close(GO_AGENT_GRACE);
    await this.#listeners.close();
  }

  #goAgents(): GrpcServer {
    const { hubId: serverId, observation, keepaliveTime: keepaliveMs } = this.#options;
    const { events } = observation;
    const service = agentService<AdmittedAgent>({
      serverId,
      events,
      onAgent: (agent, admitted) => this.#openPackets(agent, admitted ?? { tenant: DEFAULT_TENANT }),
      serverCount: () => this.#serverCount(),
      ...this.#admission.packets,
    });
    const windows = { streamWindow: GO_AGENT_WINDOW, maxStreams: GO_AGENT_STREAMS, strangers: STRANGERS };
    return grpcServer({ services: [service], events, name: 'agents', keepaliveMs, ...windows });
  }

  #openPackets({ agentId, identifiers, peer, channel }: PacketAgent, agent: AdmittedAgent): void {
    const { hubId, observation } = this.#options;
    this.#admission.checkRoom(agent, agentId);
    const sessionId = newSessionId();
    const drain = () => this.#sessions.drain(sessionId);
    const { tenant } = agent;
    const dialer = packetDialer(channel, { tenant, agentId, sessionId, hubId, drain, events: observation.events });
    const protocol = 'packets' as const;
    this.#begin(sessionId, agent, { agentId, identifiers, protocol, remote: peer.remote }, dialer, peer.socket);
  }

  /** Returns how many servers an agent should connect to. */
  #serverCount(): number {
    return this.#options.serverCount ?? Math.max(1, this.membership.live);
  }

  async #admit(hello: AgentHello, socket: Socket): Promise<Welcome> {
    const { hubId, plane } = this.#options;
    const agent = await this.#admission.link(hello, socket);
    const { pingSeconds: seconds } = hello;
    const ping = seconds === undefined ? pingAtRest(this.membership.links) : { seconds, atRest: false };
    const offers = {
      ...(agent.grant && { policy: true }),
      ...(agent.renew && { renewal: true }),
      ...(ping && { ping }),
    };
    return { ...agent, ...offers, hubId, sessionId: newSessionId(), plane, serverCount: this.#serverCount() };
  }

  #open(
    socket: Socket,
    { agentId, identifiers: query, instance }: AgentHello,
    { sessionId, ping, ...agent }: Welcome,
  ): void {
    const { events } = this.#options.observation;
    // The agent may have opened other sessions meanwhile.
    this.#admission.checkRoom(agent, agentId);
    const fault = (error: Error) => void events.emit('fault', 'agents', `agent ${agentId}`, error);
    const refused = (error: Error) => void events.emit('refused', 'agents', `agent ${agentId}`, error);
    const link = new LinkClient({
      socket,
      peer: `agent ${agentId}`,
      toAgent: true,
      ping,
      orphaned: () => events.emit('tunnel:orphaned', 'hub'),
      fault,
      refused,
      receive: (message) => {
        if (message.type === 'drain') this.#sessions.drain(sessionId);
        else if (message.type === 'credential') void standing?.renew(message.token, () => link.sendRenewed());
      },
    });
    const quit = this.membership.add(link);
    void link.closed.then(guarding(fault)(quit));
    if (agent.grant) this.#policies.add(agent.grant.tenant, link);
    const ignored: string[] = [];
    const identifiers = parseIdentifiers(query, undefined, (each) => ignored.push(each));
    const mistake = ignoredError(ignored);
    if (mistake) refused(mistake);
    const protocol = 'link' as const;
    const remote = remoteOf(socket);
    const said = { agentId, identifiers, protocol, remote, ...(instance !== undefined && { instance }) };
    const standing = this.#begin(sessionId, agent, said, link, socket);
  }

  /** Begins the session of an agent. It ends when the agent's credential does not stand any more, or when it claims more than it may. */
  #begin(
    sessionId: string,
    agent: AdmittedAgent,
    session: Said,
    dialer: Dialer,
    socket: Socket,
  ): SessionStanding | undefined {
    const { tenant, grant } = agent;
    this.#listeners.admitted(socket);
    const identity = { ...session, tenant, ...(grant && { principal: grant.principal }) };
    // A Go agent judges no addresses: a name is refused unless a rule allows it as a name.
    const { tenancy } = this.#options;
    const judged = session.protocol === 'packets' && tenancy;
    const refuse = judged ? (request: DialRequest) => judged.permits(request, []) : undefined;
    this.#sessions.add(sessionId, identity, dialer, refuse);
    if (!grant) return undefined;
    const refused = (error: Error) =>
      void this.#options.observation.events.emit('refused', refusedWhere(error, 'agents'), session.remote, error);
    const ended = (reason: Error) => {
      refused(reason);
      dialer.expel(reason);
    };
    const standing = new SessionStanding({ grant, claim: session, renew: agent.renew, ended, refused });
    void dialer.closed.then(() => standing[Symbol.dispose]());
    return standing;
  }
}

/** What is known about a session, apart from its tenant and principal. */
type Said = Omit<AgentIdentity, 'tenant' | 'principal'>;
