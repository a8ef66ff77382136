import type { HubRegistration, Registry } from '@isthmus/registry';
import type { Check, SessionMove } from '@isthmus/service';
import { type HubMember, type PeerServer, servePeers, type TlsSettings } from '@isthmus/transport';
import { type Change, type Dial, type Directory, type HubRecord, observed, type SessionInfo } from '@isthmus/tunnel';
import { AgentPort, type AgentPortOptions } from './agent-port.ts';
import { giveUpSessions } from './departure.ts';
import { agentKey, sessionsElsewhere } from './elsewhere.ts';
import { SessionTable } from './sessions.ts';

export interface HubOptions extends AgentPortOptions {
  readonly zone: string;
  /** Where gateways connect; unset for a hub that serves only the gateway in its own process. */
  readonly peers?: { readonly host: string; readonly port: number; readonly tls: TlsSettings };
  /** `host:port` where gateways reach the peer port. */
  readonly advertiseAddress: string;
  /** `host:port` where agents reach this hub; empty when only a load balancer leads to it. */
  readonly advertiseAgentAddress: string;
  readonly registry: Registry;
  /** The registry's copy: where agents have other sessions. */
  readonly directory: Directory;
  /** Told of every change of this hub and its sessions at once, before the registry knows. */
  readonly changed: (change: Change) => void;
}

export interface Hub {
  readonly hubId: string;
  readonly dial: Dial;
  readonly agentAddress: string;
  /** Empty without a peer port. */
  readonly peerAddress: string;
  sessions(): Iterable<SessionInfo>;
  /** Where its agents could go if it drained. */
  moves(): Iterable<SessionMove>;
  /** Dials and tunnels. */
  readonly open: number;
  readonly draining: boolean;
  /** Whether gateways can find this hub: not any more when another process has taken its id. */
  readonly registration: Check;
  /** The plane's hubs, this one included: passed on to agents. */
  membership(hubs: Iterable<HubRecord>): void;
  /**
   * Takes no new agent, asks gateways and agents to go elsewhere, takes dials for an agent until it has, and resolves when
   * no tunnel runs any more.
   */
  drain(): Promise<void>;
  /** Ends everything at once. */
  close(): Promise<void>;
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
  readonly #options: HubOptions;
  readonly #record: HubRecord;
  readonly #registration: HubRegistration;
  readonly #sessions: SessionTable;
  readonly #agents: AgentPort;
  #peers: PeerServer | undefined;
  #drained: Promise<void> | undefined;
  #registered = { superseded: false, detail: 'not yet registered' };

  constructor(options: HubOptions) {
    const { hubId, zone, registry, changed, observation } = options;
    const { events } = observation;
    const incarnation = Date.now();
    this.#options = options;
    this.hubId = hubId;
    this.#record = {
      ...{ hubId, zone, incarnation, draining: false },
      peerAddress: options.advertiseAddress,
      agentAddress: options.advertiseAgentAddress,
    };
    this.#registration = registry.register(this.#record, (up, detail) => {
      this.#registered.detail = detail;
      this.#agents.membership.registry(up);
      events.emit('registry', up ? 'up' : 'down', detail);
    });
    void this.#registration.superseded.then(() => {
      this.#registered.superseded = true;
    });
    this.#sessions = new SessionTable({ hubId, incarnation, events, changed, registration: this.#registration });
    this.#agents = new AgentPort(options, this.#sessions);
    this.dial = observed('hub', this.#sessions.dial, observation);
  }

  get agentAddress(): string {
    return this.#agents.address;
  }

  get peerAddress(): string {
    return this.#peers?.address ?? '';
  }

  get open(): number {
    return this.#sessions.open;
  }

  get draining(): boolean {
    return this.#drained !== undefined;
  }

  get registration(): Check {
    const { superseded, detail } = this.#registered;
    return { name: 'registration', ok: !superseded, detail };
  }

  sessions(): Iterable<SessionInfo> {
    return this.#sessions.list();
  }

  *moves(): Iterable<SessionMove> {
    const elsewhere = sessionsElsewhere(this.#options.directory, this.hubId);
    for (const session of this.#sessions.list()) {
      const { sessionId, tenant, agentId } = session;
      yield { sessionId, tenant, agentId, elsewhere: elsewhere.get(agentKey(session)) ?? 0 };
    }
  }

  async start(): Promise<void> {
    const { peers, observation, changed } = this.#options;
    changed({ kind: 'hub', hub: this.#record });
    try {
      if (peers) this.#peers = await servePeers({ ...peers, dial: this.dial, events: observation.events });
      await this.#agents.start();
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  membership(hubs: Iterable<HubRecord>): void {
    const members = [...hubs].map(asMember);
    // This one lives, also when a registry that lost everything does not know it yet.
    if (!members.some(({ hubId }) => hubId === this.hubId)) members.push(asMember(this.#record));
    this.#agents.membership.update(members);
  }

  drain(): Promise<void> {
    this.#drained ??= this.#drain();
    return this.#drained;
  }

  async #drain(): Promise<void> {
    this.#options.changed({ kind: 'hub', hub: { ...this.#record, draining: true } });
    this.#registration.update({ draining: true });
    await this.#agents.stop();
    this.#sessions.leave();
    await giveUpSessions(this.#sessions, this.#options.directory, this.hubId);
    this.#peers?.drain();
    await this.#sessions.idle();
    // Before the links end: gateways then know why, and do not try to open them again.
    await this.#registration.close();
  }

  async close(): Promise<void> {
    this.#sessions.destroy(new Error('hub stops'));
    await Promise.all([this.#agents.close(), this.#peers?.close(), this.#registration.close()]);
  }
}

function asMember({ hubId, agentAddress: address, zone, draining, incarnation: generation }: HubRecord): HubMember {
  return { hubId, address, zone, draining, generation };
}
