import type { SessionMove } from '@isthmus/admin';
import type { Change, Directory, HubRecord, HubRegistration, Registry } from '@isthmus/directory';
import type { Hub } from '@isthmus/plane';
import type { AdmissionState, Check } from '@isthmus/service';
import { ApiServerGateways, type PeerServer, type PeerServerOptions, servePeers } from '@isthmus/transport';
import { type Ask, type Attach, agentKey, type Dial, type GatewayLoss, type Question } from '@isthmus/tunnel';
import { AgentPort, type AgentPortOptions } from './agent-port.ts';
import { hubAttach, hubDial } from './pipeline.ts';
import { giveUpSessions, SessionTable, sessionsAtOtherHubs } from './sessions.ts';

export interface HubOptions extends AgentPortOptions {
  readonly zone: string;
  /** Where gateways connect; unset for a hub that serves only the gateway in its own process. */
  readonly peers?: Pick<PeerServerOptions, 'host' | 'port' | 'socket' | 'tls'>;
  /** `host:port` where gateways reach the peer port. */
  readonly advertiseAddress: string;
  /** `host:port` where agents reach this hub. Empty if they reach it only through a load balancer. */
  readonly advertiseAgentAddress: string;
  readonly registry: Registry;
  /** Answers gateways' questions for operators. */
  readonly answer?: Ask | undefined;
  /** The registry's copy: where agents have other sessions. */
  readonly directory: Directory;
  /** Called for each change of this hub and its sessions, before the registry knows. */
  readonly changed: (change: Change) => void;
}

/** Runs a hub: accepts agents, announces their sessions, relays tunnels. */
export async function hub(options: HubOptions): Promise<Hub> {
  const running = new RunningHub(options);
  await running.start();
  return running;
}

class RunningHub implements Hub {
  readonly hubId: string;
  readonly dial: Dial;
  readonly attach: Attach;
  readonly sessions: SessionTable;
  readonly #options: HubOptions;
  /** This hub's record in the registry. */
  #record: HubRecord;
  /** Unset until its ports listen. */
  #registration: HubRegistration | undefined;
  readonly #agents: AgentPort;
  readonly #gateways: ApiServerGateways;
  #peers: PeerServer | undefined;
  #leaving = false;
  #drained: Promise<void> | undefined;
  /** The plane's hubs, as last reported. */
  #hubs: readonly HubRecord[] = [];
  readonly #superseded = Promise.withResolvers<Error>();
  /** Fails once another process has taken this hub's record. */
  registration: Check = { name: 'registration', ok: true, detail: 'not yet registered' };

  constructor(options: HubOptions) {
    this.#options = options;
    this.hubId = options.hubId;
    const { zone, changed, observation, advertiseAddress, advertiseAgentAddress } = options;
    const incarnation = Date.now();
    const addresses = { peerAddress: advertiseAddress, agentAddress: advertiseAgentAddress };
    this.#record = { hubId: this.hubId, zone, incarnation, draining: false, ...addresses };
    this.sessions = new SessionTable({
      hubId: this.hubId,
      incarnation,
      events: observation.events,
      changed,
      // The first agent arrives after the tick of the event loop in which the last port listens and the hub registers.
      registration: {
        announce: (session) => this.#registration?.announce(session),
        withdraw: (sessionId, version) => this.#registration?.withdraw(sessionId, version),
      },
    });
    this.#gateways = new ApiServerGateways({ hubId: this.hubId, events: observation.events });
    this.#agents = new AgentPort(options, this.sessions, this.#gateways);
    const way = { observation, manyTenants: options.tenancy !== undefined };
    this.dial = hubDial({ ...way, hubId: this.hubId, session: this.sessions.dial });
    this.attach = hubAttach({ ...way, session: this.sessions.attach });
  }

  /** What it tells of itself. */
  get record(): HubRecord {
    return this.#record;
  }

  get agentAddress(): string {
    return this.#agents.listeners.address;
  }

  get peerAddress(): string {
    return this.#peers?.address ?? '';
  }

  get admission(): AdmissionState {
    if (this.#drained) return 'draining';
    return this.#leaving ? 'leaving' : 'open';
  }

  get unopened(): readonly string[] {
    return this.#agents.listeners.unopened;
  }

  renewals(tenant: string): number {
    return this.#agents.admission.renewals.last(tenant);
  }

  asker(to: Question['to']): Ask | undefined {
    if ('member' in to) return this.#peers?.ask(to.member);
    return this.sessions.asker({ tenant: to.tenant, agentId: to.agent });
  }

  get gateways(): readonly string[] {
    return this.#peers?.asked ?? [];
  }

  apiServerConnections(tenant: string): number {
    return this.#agents.apiServers.open(tenant);
  }

  *moves(): Iterable<SessionMove> {
    const elsewhere = sessionsAtOtherHubs(this.#options.directory, this.hubId);
    for (const session of this.sessions.list()) {
      const { sessionId, tenant, agentId } = session;
      yield { sessionId, tenant, agentId, elsewhere: elsewhere.get(agentKey(session)) ?? 0 };
    }
  }

  async start(): Promise<void> {
    const { hubId, peers, observation, tenancy, answer } = this.#options;
    const { dial, attach } = this;
    try {
      const { events } = observation;
      const tenantsOf = tenancy?.identify.gateway;
      const hungUp = (loss: GatewayLoss) => this.#agents.reports.hungUp(loss);
      const own = { hubId, dial, attach, answer, tenantsOf, apiServers: this.#gateways, events, hungUp };
      if (peers) this.#peers = await servePeers({ ...peers, ...own });
      await this.#agents.start();
      this.#register();
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  /** Call when the ports listen: peers may connect as soon as they see this hub. */
  #register(): void {
    const { registry, changed, observation } = this.#options;
    changed({ kind: 'hub', hub: this.#record });
    this.#registration = registry.register(this.#record, (up, detail) => {
      this.registration = { ...this.registration, detail };
      this.#agents.reports.registry(up);
      observation.events.emit('registry', up ? 'up' : 'down', detail);
    });
    void this.#registration.superseded.then((by) => {
      const detail = takenBy(this.hubId, by);
      this.registration = { ...this.registration, ok: false, detail };
      this.#superseded.resolve(new Error(detail));
    });
  }

  get superseded(): Promise<Error> {
    return this.#superseded.promise;
  }

  membership(hubs: Iterable<HubRecord>): void {
    const { ok } = this.registration;
    const own = (hub: HubRecord) => ok && hub.hubId === this.hubId;
    const known = [...hubs];
    this.#hubs = known;
    // Its own state is newer than the registry's: it may drain already, and it lives even if the registry lost everything.
    const told = known.map((hub) => (own(hub) ? { ...hub, draining: this.#record.draining } : hub));
    if (ok && !known.some(own)) told.push(this.#record);
    const members = told.map(({ hubId, agentAddress: address, zone, draining, incarnation: generation }) => {
      return { hubId, address, zone, draining, generation };
    });
    this.#agents.reports.update(members);
  }

  leave(): void {
    this.#leaving = true;
  }

  drain(): Promise<void> {
    this.#drained ??= this.#drain();
    return this.#drained;
  }

  async #drain(): Promise<void> {
    this.#record = { ...this.#record, draining: true };
    this.#options.changed({ kind: 'hub', hub: this.#record });
    this.#registration?.drain();
    this.membership(this.#hubs);
    this.#agents.reports.flush();
    await this.#agents.stop();
    this.sessions.leave();
    await giveUpSessions(this.sessions, this.#options.directory, this.hubId);
    this.#peers?.drain();
    await this.sessions.idle();
  }

  async close(): Promise<void> {
    this.sessions.destroy(new Error('hub stops'));
    await this.#agents.close();
    this.#gateways.close();
    await Promise.all([this.#peers?.close(), this.#registration?.close()]);
  }
}

/** Says who has the record of a hub's id, and where. */
function takenBy(hubId: string, by: HubRecord | undefined): string {
  const places = [
    by && `it started at ${new Date(by.incarnation).toISOString()}`,
    by?.peerAddress && `gateways reach it at ${by.peerAddress}`,
    by?.agentAddress && `agents reach it at ${by.agentAddress}`,
  ];
  const where = places.filter(Boolean).join(', ');
  return `another process has taken the record of --server-id ${hubId}${where && `: ${where}`}. Give each server its own id`;
}
