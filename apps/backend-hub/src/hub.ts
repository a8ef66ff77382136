import type { SessionMove } from '@isthmus/admin';
import type { Change, Directory, HubRecord, HubRegistration, Registry } from '@isthmus/directory';
import type { Hub } from '@isthmus/plane';
import { within } from '@isthmus/runtime';
import type { AdmissionState, Check } from '@isthmus/service';
import { type HubMember, type PeerServer, type PeerServerOptions, servePeers } from '@isthmus/transport';
import {
  type Ask,
  type Attach,
  agentKey,
  type Dial,
  type GatewayLoss,
  inWords,
  type PlaneEvents,
  pipeline,
  type Question,
  type SessionInfo,
} from '@isthmus/tunnel';
import { AgentPort, type AgentPortOptions } from './agent-port.ts';
import { HUB } from './defaults.ts';
import { hubAttach, hubStages } from './pipeline.ts';
import { giveUpSessions, SessionTable, sessionsAtOtherHubs } from './sessions.ts';

interface SuccessionOptions {
  readonly hubId: string;
  readonly events: PlaneEvents;
  /** Sends agents to other hubs. Resolves when no tunnel is left. */
  readonly drain: () => Promise<void>;
  /** Ends the tunnels that still run. */
  readonly destroy: (reason: Error) => void;
  /** Closes all ports and links. */
  readonly shut: () => Promise<void>;
  /** Starts again, as a new process of this hub would. */
  readonly begin: () => Promise<void>;
}

/** Makes a hub give way when another process registers under its id, and come back when that process has ended. */
export class Succession {
  readonly #options: SuccessionOptions;
  #superseded = false;
  #detail = 'not yet registered';
  /** Resolves when this hub's agents have left after it gave way. */
  #gaveWay: Promise<void> = Promise.resolve();
  #reclaiming: Promise<void> | undefined;
  /** The hub is stopping, and does not come back. */
  #ending = false;

  constructor(options: SuccessionOptions) {
    this.#options = options;
  }

  get superseded(): boolean {
    return this.#superseded;
  }

  get check(): Check {
    return { name: 'registration', ok: !this.#superseded, detail: this.#detail };
  }

  /** Stores the registry's last report about the registration. */
  tell(detail: string): void {
    this.#detail = detail;
  }

  /** Call when another process has registered under this hub's id. Agents move there, because gateways find no session here. */
  giveWay(): void {
    const { events } = this.#options;
    this.#gaveWay = this.#leave().catch((error) => void events.emit('fault', 'succession', '', error));
  }

  /** Call when no other process runs under this hub's id. */
  reclaim(): void {
    if (this.#superseded) this.#reclaiming ??= this.#comeBack();
  }

  end(): void {
    this.#ending = true;
  }

  async #leave(): Promise<void> {
    const { hubId, drain, destroy } = this.#options;
    this.#lose(
      `another process was started under --server-id ${hubId}, and agents are sent there until it ends: ${this.#detail}`,
    );
    await within(drain(), HUB.supersededGraceMs);
    destroy(new Error(`hub ${hubId} runs in another process`));
  }

  async #comeBack(): Promise<void> {
    const { shut, begin } = this.#options;
    await this.#gaveWay;
    try {
      await shut();
      if (this.#ending) return;
      this.#superseded = false;
      this.#detail = 'its id is its own again';
      this.#reclaiming = undefined;
      await begin();
      // What was closed meanwhile is what there was before.
      if (this.#ending) await shut();
    } catch (error) {
      this.#reclaiming = undefined;
      this.#lose(`it cannot listen again: ${inWords(error)}`);
      setTimeout(() => this.reclaim(), HUB.listenAgainMs).unref();
    }
  }

  #lose(detail: string): void {
    this.#superseded = true;
    this.#detail = detail;
    this.#options.events.emit('registry', 'down', detail);
  }
}

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
  readonly #options: HubOptions;
  /** This hub's record in the registry. */
  #record: HubRecord;
  /** Unset until its ports listen. */
  #registration: HubRegistration | undefined;
  #sessions: SessionTable;
  #agents: AgentPort;
  #peers: PeerServer | undefined;
  #leaving = false;
  #drained: Promise<void> | undefined;
  /** The plane's hubs, as last reported. */
  #hubs: readonly HubRecord[] = [];
  readonly #succession: Succession;

  constructor(options: HubOptions) {
    this.#options = options;
    this.hubId = options.hubId;
    [this.#record, this.#sessions, this.#agents] = this.#term();
    // A hub that begins anew has another table.
    const way = { observation: options.observation, manyTenants: options.tenancy !== undefined };
    this.dial = pipeline(hubStages({ ...way, session: (request) => this.#sessions.dial(request) }));
    this.attach = hubAttach({ ...way, session: (request) => this.#sessions.attach(request) });
    this.#succession = new Succession({
      hubId: this.hubId,
      events: options.observation.events,
      drain: () => this.#drainOnce(),
      destroy: (reason) => this.#sessions.destroy(reason),
      shut: () => this.#shut(),
      begin: () => this.#begin(),
    });
  }

  /** Creates what a hub needs, at its start and when its id is free again. */
  #term(): [HubRecord, SessionTable, AgentPort] {
    const { hubId, zone, changed, observation, advertiseAddress, advertiseAgentAddress } = this.#options;
    const { events } = observation;
    const incarnation = Date.now();
    const addresses = { peerAddress: advertiseAddress, agentAddress: advertiseAgentAddress };
    const sessions = new SessionTable({
      hubId,
      incarnation,
      events,
      changed,
      // The first agent arrives after the tick of the event loop in which the last port listens and the hub registers.
      registration: {
        announce: (session) => this.#registration?.announce(session),
        withdraw: (sessionId, version) => this.#registration?.withdraw(sessionId, version),
      },
    });
    const record = { hubId, zone, incarnation, draining: false, ...addresses };
    return [record, sessions, new AgentPort(this.#options, sessions)];
  }

  get agentAddress(): string {
    return this.#agents.listeners.address;
  }

  get peerAddress(): string {
    return this.#peers?.address ?? '';
  }

  get open(): number {
    return this.#sessions.open;
  }

  get admission(): AdmissionState {
    if (this.#drained) return 'draining';
    return this.#leaving ? 'leaving' : 'open';
  }

  get registration(): Check {
    return this.#succession.check;
  }

  get unopened(): readonly string[] {
    return this.#agents.listeners.unopened;
  }

  sessions() {
    return this.#sessions.list();
  }

  renewals(tenant: string): number {
    return this.#agents.admission.renewals.last(tenant);
  }

  asker(to: Question['to']): Ask | undefined {
    if ('member' in to) return this.#peers?.ask(to.member);
    return this.#sessions.asker({ tenant: to.tenant, agentId: to.agent });
  }

  get gateways(): readonly string[] {
    return this.#peers?.asked ?? [];
  }

  kick(which: (session: SessionInfo) => boolean, reason: Error): SessionInfo[] {
    return this.#sessions.kick(which, reason);
  }

  get sessionCount(): number {
    return this.#sessions.size;
  }

  get tenants(): ReadonlyMap<string, number> {
    return this.#sessions.tenants;
  }

  *moves(): Iterable<SessionMove> {
    const elsewhere = sessionsAtOtherHubs(this.#options.directory, this.hubId);
    for (const session of this.#sessions.list()) {
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
      const hungUp = (loss: GatewayLoss) => this.#agents.membership.hungUp(loss);
      if (peers) this.#peers = await servePeers({ ...peers, hubId, dial, attach, answer, tenantsOf, events, hungUp });
      await this.#agents.start();
      this.#register();
    } catch (error) {
      await this.#shut();
      throw error;
    }
  }

  /** Call when the ports listen: peers may connect as soon as they see this hub. */
  #register(): void {
    const { registry, changed, observation } = this.#options;
    changed({ kind: 'hub', hub: this.#record });
    this.#registration = registry.register(this.#record, (up, detail) => {
      this.#succession.tell(detail);
      this.#agents.membership.registry(up);
      observation.events.emit('registry', up ? 'up' : 'down', detail);
    });
    void this.#registration.superseded.then(() => this.#succession.giveWay());
  }

  reclaim(): void {
    this.#succession.reclaim();
  }

  async #begin(): Promise<void> {
    [this.#record, this.#sessions, this.#agents] = this.#term();
    this.#drained = undefined;
    this.#leaving = false;
    await this.start();
    this.membership(this.#hubs);
  }

  membership(hubs: Iterable<HubRecord>): void {
    const { superseded } = this.#succession;
    const own = (hub: HubRecord) => !superseded && hub.hubId === this.hubId;
    const known = [...hubs];
    this.#hubs = known;
    // Its own state is newer than the registry's: it may drain already, and it lives even if the registry lost everything.
    const told = known.map((hub) => (own(hub) ? { ...hub, draining: this.#record.draining } : hub));
    if (!superseded && !known.some(own)) told.push(this.#record);
    this.#agents.membership.update(told.map(asMember));
  }

  leave(): void {
    this.#leaving = true;
  }

  drain(): Promise<void> {
    this.#succession.end();
    return this.#drainOnce();
  }

  #drainOnce(): Promise<void> {
    this.#drained ??= this.#drain();
    return this.#drained;
  }

  async #drain(): Promise<void> {
    this.#record = { ...this.#record, draining: true };
    this.#options.changed({ kind: 'hub', hub: this.#record });
    this.#registration?.drain();
    this.membership(this.#hubs);
    this.#agents.membership.flush();
    await this.#agents.stop();
    this.#sessions.leave();
    await giveUpSessions(this.#sessions, this.#options.directory, this.hubId);
    this.#peers?.drain();
    await this.#sessions.idle();
    // Deregister before the links end, so that gateways do not try to open them again.
    await this.#registration?.close();
  }

  async close(): Promise<void> {
    this.#succession.end();
    await this.#shut();
  }

  async #shut(): Promise<void> {
    this.#sessions.destroy(new Error('hub stops'));
    await Promise.all([this.#agents.close(), this.#peers?.close(), this.#registration?.close()]);
  }
}

function asMember({ hubId, agentAddress: address, zone, draining, incarnation: generation }: HubRecord): HubMember {
  return { hubId, address, zone, draining, generation };
}
