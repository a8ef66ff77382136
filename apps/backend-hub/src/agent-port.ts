import type { BlockList, Socket } from 'node:net';
import { type ApiServerSettings, apiServersOf, followApiServers, type Tenancy, TenantPorts } from '@isthmus/plane';
import {
  guarding,
  remoteOf,
  type TlsSettings,
  type WaitingConnections,
  type WaitingLimits,
  WaitingPool,
} from '@isthmus/runtime';
import {
  type AgentHello,
  Allowances,
  type ApiServerGateways,
  type ApiServers,
  agentService,
  GrpcServer,
  type HubHello,
  LinkClient,
  type ListenAddress,
  type Listener,
  listen,
  type NextHopConnection,
  type PacketAgent,
  PacketClient,
  pingAtRest,
  type Reach,
  readersOf,
  refusedWhere,
  type SocketEnd,
  shownCertificate,
  upgradeServer,
} from '@isthmus/transport';
import { type DialRequest, type Observation, principalText } from '@isthmus/tunnel';
import {
  type AdmittedAgent,
  AgentAdmission,
  type AgentAdmissionOptions,
  type SessionGrant,
  standing,
} from './agent-admission.ts';
import { AgentLinks } from './api-server-links.ts';
import { HUB } from './defaults.ts';
import { HubReports, Policies } from './membership.ts';
import { type AgentIdentity, newSessionId, type SessionTable } from './sessions.ts';

interface AgentListenersOptions {
  /** Where agents connect. Unset TLS: a proxy in front terminates it. */
  readonly agents: {
    readonly address: ListenAddress;
    readonly tls?: TlsSettings;
    readonly proxyNetworks?: BlockList | undefined;
  };
  /** Unset: one tenant, and one port. */
  readonly tenancy?: Tenancy;
  /** Where clients of API servers connect besides. Unset: nowhere. */
  readonly apiServerPort?: number | undefined;
  readonly limits: {
    /** Connections that wait to be admitted: in total, and from one source address. */
    readonly waiting: number;
    readonly waitingOfSource: number;
  };
  readonly observation: Observation;
}

/** What takes the connections, told apart by their first bytes. */
interface AgentProtocols {
  /** Those of clients that name an API server. */
  readonly apiServers: ApiServers;
  /** Our agents'. */
  readonly link: (end: SocketEnd, first: Buffer) => void;
  /** Go agents'. */
  readonly packets: (socket: Socket, first: Buffer) => void;
}

/** A fatal alert, unrecognized_name, which TLS servers send who have no such name (RFC 6066 section 3). */
const UNRECOGNIZED_NAME = Buffer.from([21, 3, 3, 0, 2, 2, 112]);

/** Where only API servers are reached, nobody else is served. */
function refuseUnnamed({ stream }: SocketEnd): void {
  stream.write(UNRECOGNIZED_NAME);
  throw new Error('its client asks for the name of no API server');
}

/** The port that accepted a connection. */
interface AcceptingPort {
  /** The tenant whose own it is. */
  readonly tenant?: string;
  readonly unproven: WaitingConnections;
}

/** The ports where agents connect: the one of all tenants, and those that tenants have for themselves. */
class AgentListeners {
  readonly #options: AgentListenersOptions;
  readonly #protocols: AgentProtocols;
  readonly #ports = new WeakMap<Socket, AcceptingPort>();
  /** Of this port and tenants' own. */
  readonly #unprovenPool: WaitingPool;
  /** Including ports of tenants that have none any more, while agents' sessions run there. */
  readonly #listeners = new Set<Listener>();
  #main: Listener | undefined;
  #own: TenantPorts<Listener> | undefined;

  constructor(options: AgentListenersOptions, protocols: AgentProtocols) {
    this.#options = options;
    this.#protocols = protocols;
    this.#unprovenPool = new WaitingPool(options.limits.waiting);
  }

  get address(): string {
    return this.#main?.address ?? '';
  }

  /** Why tenants' own ports cannot be opened. */
  get unopened(): readonly string[] {
    return this.#own?.problems ?? [];
  }

  /** Returns the port that accepted a connection. */
  portOf(socket: Socket): AcceptingPort | undefined {
    return this.#ports.get(socket);
  }

  /** Call when the agent of a connection has proven who it is, and has what it asks for. */
  proven(socket: Socket): void {
    this.#ports.get(socket)?.unproven.leave(socket);
  }

  async start(): Promise<void> {
    const { agents, observation, tenancy } = this.#options;
    const choose = tenancy && { chooseTls: tenancy.chooseTls };
    const byName = this.#protocols.apiServers.byName();
    this.#main = await this.#open({ ...agents, ...choose, byName, events: observation.events });
    await this.#openApiServers();
    if (tenancy) await this.#openOwnPorts(tenancy);
  }

  async stop(): Promise<void> {
    await this.#own?.stop();
    await Promise.all([...this.#listeners].map((listener) => listener.stop()));
  }

  async close(): Promise<void> {
    await this.#own?.stop();
    await Promise.all([...this.#listeners].map((listener) => listener.close()));
  }

  /** Opens the port of API servers alone. There is no certificate to show to who names none. */
  async #openApiServers(): Promise<void> {
    const { agents, apiServerPort: port, observation } = this.#options;
    if (port === undefined || !('host' in agents.address)) return;
    const listener = await listen({
      address: { host: agents.address.host, port },
      proxyNetworks: agents.proxyNetworks,
      name: 'agents',
      unproven: this.#unproven(undefined),
      unprovenPool: this.#unprovenPool,
      byName: this.#protocols.apiServers.byName(),
      http2: refuseUnnamed,
      others: refuseUnnamed,
      events: observation.events,
    });
    this.#listeners.add(listener);
  }

  async #open(port: OpenedPort, tenant?: string): Promise<Listener> {
    const { link, packets } = this.#protocols;
    const asksOnly = this.#options.tenancy !== undefined;
    const enter = (socket: Socket) => {
      const { unproven } = listener;
      this.#ports.set(socket, { unproven, ...(tenant !== undefined && { tenant }) });
      // The port has verified its certificate. Whether it may stay is another question.
      if (!asksOnly && port.tls?.ca !== undefined) unproven.proved(socket);
    };
    const listener: Listener = await listen({
      ...port,
      asksOnly,
      name: 'agents',
      handshakeTimeout: HUB.handshakeMs,
      unproven: this.#unproven(tenant),
      unprovenPool: this.#unprovenPool,
      others(end, first) {
        enter(end.stream);
        link(end, first);
      },
      http2(end, first) {
        enter(end.stream);
        packets(end.release(), first);
      },
    });
    this.#listeners.add(listener);
    return listener;
  }

  /** Opens and closes tenants' ports with their files. */
  async #openOwnPorts(tenancy: Tenancy): Promise<void> {
    const { agents, observation } = this.#options;
    const { events } = observation;
    const host = 'host' in agents.address ? agents.address.host : '';
    const { proxyNetworks, tls } = agents;
    this.#own = new TenantPorts({
      tenancy,
      of: 'agents',
      open: ({ port = 0, tenant }, portEvents) => {
        const shown = tls && { tls, instead: tenancy.certificateOf(tenant) };
        const byName = this.#protocols.apiServers.byName(tenant);
        return this.#open({ address: { host, port }, ...shown, proxyNetworks, byName, events: portEvents }, tenant);
      },
      // Sessions go on: an agent's credential says whose it is, wherever it came in.
      close: async (_port, listener) => {
        void listener.idle.then(() => this.#listeners.delete(listener));
        await listener.stop();
      },
      events,
    });
    await this.#own.look();
  }

  #unproven(tenant: string | undefined): WaitingLimits {
    const { waiting, waitingOfSource: mostOfSource } = this.#options.limits;
    const most = tenant === undefined ? waiting : Math.min(waiting, HUB.ownPortWaiting);
    const names = { most: '--max-waiting-agents', mostOfSource: '--max-waiting-agents-per-source' };
    return { most, mostOfSource, names, deadlineMs: HUB.admissionMs };
  }
}

type OpenedPort = Pick<
  Parameters<typeof listen>[0],
  'address' | 'tls' | 'instead' | 'chooseTls' | 'byName' | 'events' | 'proxyNetworks'
>;

export interface AgentPortOptions extends AgentAdmissionOptions, AgentListenersOptions, ApiServerSettings {
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
type Welcome = HubHello & AdmittedAgent & Reach;

/** Where agents connect: our agents' links and Go agents' packet streams, told apart by the first bytes. */
export class AgentPort {
  /** Tells agents about the plane's hubs, and of gateways that are gone. */
  readonly reports = new HubReports();
  readonly admission: AgentAdmission;
  readonly listeners: AgentListeners;
  readonly apiServers: ApiServers;
  readonly #options: AgentPortOptions;
  /** Agents' own links to their API servers. */
  readonly #apiServerLinks: AgentLinks;
  readonly #sessions: SessionTable;
  readonly #policies = new Policies();
  readonly #allowances = new Allowances();
  readonly #grpc: GrpcServer;
  #unwatch = () => {};

  /** @param gateways those that connect to API servers for this hub */
  constructor(options: AgentPortOptions, sessions: SessionTable, gateways: ApiServerGateways) {
    const { events } = options.observation;
    this.#options = options;
    this.#sessions = sessions;
    this.admission = new AgentAdmission(options, sessions, (socket) => this.listeners.portOf(socket));
    this.#grpc = this.#goAgents();
    const link = upgradeServer<Welcome>({
      admit: (hello, socket) => this.#admit(hello, socket),
      open: (socket, hello, answer) => this.#open(socket, hello, answer),
      refused: (socket, error) => events.emit('refused', refusedWhere(error, 'agents'), remoteOf(socket), error),
      fault: (socket, error) => events.emit('fault', 'agents', remoteOf(socket), error),
    });
    this.apiServers = apiServersOf(options);
    const { admission, apiServers } = this;
    this.#apiServerLinks = new AgentLinks({ ...options, admission, apiServers, gateways });
    this.listeners = new AgentListeners(options, {
      apiServers: this.apiServers,
      link,
      packets: (socket, first) => this.#grpc.accept(socket, first),
    });
  }

  async start(): Promise<void> {
    const { tenancy } = this.#options;
    const unwatch = followApiServers(this.apiServers, this.#options);
    const unwatchPolicies = tenancy?.changed(({ changed }) => {
      for (const name of changed) this.#policies.renew(tenancy.tenants.get(name));
    });
    this.#unwatch = () => {
      unwatch?.();
      unwatchPolicies?.();
    };
    await this.listeners.start();
  }

  /** Takes no new agent. */
  async stop(): Promise<void> {
    this.#unwatch();
    this.#apiServerLinks.leave();
    await this.listeners.stop();
  }

  async close(): Promise<void> {
    this.#unwatch();
    this.reports.close();
    this.apiServers.close();
    this.#apiServerLinks.close();
    await this.#grpc.close(HUB.goAgentGraceMs);
    await this.listeners.close();
  }

  #goAgents(): GrpcServer {
    const { hubId: serverId, observation, keepaliveTime: keepaliveMs } = this.#options;
    const { events } = observation;
    const service = agentService<AdmittedAgent>({
      serverId,
      events,
      onAgent: (agent, admitted) => this.#openPackets(agent, admitted),
      serverCount: () => this.#serverCount(),
      ...this.admission.packets,
    });
    const windows = {
      streamWindow: HUB.goAgentWindowBytes,
      maxStreams: HUB.goAgentStreams,
      unproven: { streamWindow: HUB.waitingWindowBytes, maxStreams: HUB.waitingStreams },
    };
    return new GrpcServer({ service, events, name: 'agents', keepaliveMs, ...windows });
  }

  #openPackets({ agentId, identifiers, peer, channel }: PacketAgent, agent: AdmittedAgent): void {
    const { events } = this.#options.observation;
    const sessionId = newSessionId();
    const drain = () => this.#sessions.drain(sessionId);
    const { tenant } = agent;
    const session = this.#named(sessionId, agentId, agent);
    const connection = new PacketClient(channel, { tenant, ...session, drain, events });
    const protocol = 'packets' as const;
    this.#begin(sessionId, agent, { agentId, identifiers, protocol, remote: peer.remote }, connection, peer.socket);
  }

  /** Returns how many servers an agent should connect to. */
  #serverCount(): number {
    return this.#options.serverCount ?? Math.max(1, this.reports.live);
  }

  async #admit(hello: AgentHello, socket: Socket): Promise<Welcome> {
    const { hubId, plane } = this.#options;
    const isSession = hello.link !== 'apiServer';
    const agent = isSession
      ? await this.admission.link(hello, socket)
      : await this.#apiServerLinks.admit(hello, socket);
    const { pingSeconds: seconds } = hello;
    const ping = seconds === undefined ? pingAtRest(this.reports.links) : { seconds, atRest: false };
    const offers = {
      ...(agent.grant && isSession && { policy: true }),
      ...(agent.renew && { renewal: true }),
      ...(ping && { ping }),
    };
    const sessionId = isSession ? newSessionId() : '';
    return { ...agent, ...offers, hubId, sessionId, plane, serverCount: this.#serverCount() };
  }

  #open(socket: Socket, hello: AgentHello, welcome: Welcome): void {
    if (hello.link !== 'apiServer') {
      this.#openSession(socket, hello, welcome);
      return;
    }
    this.#apiServerLinks.open(socket, hello, welcome);
    this.listeners.proven(socket);
  }

  #openSession(
    socket: Socket,
    { agentId, instance }: AgentHello,
    { sessionId, ping, identifiers, mistake, ...agent }: Welcome,
  ): void {
    const { events } = this.#options.observation;
    // The agent may have opened other sessions meanwhile.
    this.admission.checkRoom(agent, agentId);
    const peer = `agent ${agentId}`;
    const taken = () => link.send({ type: 'renewed' });
    const session = this.#named(sessionId, agentId, agent);
    const link = new LinkClient({
      ...{ socket, peer, to: 'agent', session, ping, events },
      allowance: this.#allowances.of(agent.tenant),
      readers: readersOf(agent.tenant),
      suspected: (is) => this.#sessions.suspect(sessionId, is),
      receive: (message) => {
        if (message.type === 'drain') this.#sessions.drain(sessionId);
        else if (message.type === 'credential') void sessionGrant?.renew(message.token, taken);
      },
    });
    const quit = this.reports.add(link);
    void link.closed.then(guarding((error) => events.emit('fault', 'agents', peer, error))(quit));
    if (agent.grant) this.#policies.add(agent.grant.tenant, link);
    if (mistake) events.emit('refused', 'agents', peer, mistake);
    const protocol = 'link' as const;
    const remote = remoteOf(socket);
    const said = { agentId, identifiers, protocol, remote, ...(instance !== undefined && { instance }) };
    const sessionGrant = this.#begin(sessionId, agent, said, link, socket);
  }

  /** What the answers of a session's dials say of it. */
  #named(sessionId: string, agentId: string, { grant }: AdmittedAgent) {
    const agentPrincipal = grant && principalText(grant.principal);
    const { hubId } = this.#options;
    return { agentId, sessionId, hubId, ...(agentPrincipal !== undefined && { agentPrincipal }) };
  }

  /** Begins the session of an agent. */
  #begin(
    sessionId: string,
    agent: AdmittedAgent,
    session: Said,
    connection: NextHopConnection,
    socket: Socket,
  ): SessionGrant | undefined {
    const { tenant, grant } = agent;
    this.listeners.proven(socket);
    const { validFrom, validTo } = shownCertificate(socket)?.leaf ?? {};
    const identity = {
      ...session,
      tenant,
      ...(validFrom !== undefined && validTo !== undefined && { certificate: { validFrom, validTo } }),
      ...(grant && { principal: grant.principal }),
    };
    // A Go agent judges no addresses: a name is refused unless a rule allows it as a name.
    const { tenancy } = this.#options;
    const judged = session.protocol === 'packets' && tenancy;
    const refuse = judged ? (request: DialRequest) => judged.permits(request, []) : undefined;
    this.#sessions.add(sessionId, identity, connection, refuse);
    const { events } = this.#options.observation;
    return standing(agent, { claim: session, remote: session.remote, connection, events });
  }
}

/** What is known about a session, apart from its tenant and principal. */
type Said = Omit<AgentIdentity, 'tenant' | 'principal' | 'certificate'>;
