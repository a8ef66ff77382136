import { systemClock, type TlsSettings } from '@isthmus/runtime';
import { endpointDial } from '@isthmus/transport';
import {
  Admission,
  formatDestination,
  type Observation,
  observed,
  type Prohibited,
  refuseWhenScarce,
} from '@isthmus/tunnel';
import { Reconciler } from './reconciler.ts';
import { connectUplink, DRAIN_SETTLE, type Uplink, type UplinkOptions } from './uplink.ts';

export interface AgentOptions {
  readonly agentId: string;
  /** URL query of what the agent can reach, as upstream's `--agent-identifiers`. */
  readonly identifiers: string;
  readonly tenant: string;
  readonly zone: string;
  readonly version: string;
  /** One server, a balancer before several, or a name that resolves to all of them. */
  readonly server: { readonly host: string; readonly port: number };
  readonly tls?: TlsSettings;
  /** Further ALPN names to offer, for balancers that route by them. */
  readonly alpn: readonly string[];
  /** The service account token to show, read anew for each connection. */
  readonly token: () => string | undefined;
  readonly sessionCount: number | 'all';
  /** Which count of servers that share no plane is used: the Leases', else the last server's; or the largest of all. */
  readonly serverCountSource: 'default' | 'max';
  /** Counts the servers' leases; unset when the servers themselves are believed. */
  readonly leases?: () => number;
  /** Between tries to connect, in milliseconds: at first, and at most. */
  readonly syncInterval: number;
  readonly syncIntervalCap: number;
  /** Looks for further servers even when as many as there should be are connected. */
  readonly syncForever: boolean;
  /** Sessions move to better hubs within this, in milliseconds; see docs/LIMITS.md. */
  readonly rebalanceTime: number;
  readonly keepaliveTime: number;
  /** Which addresses are not dialled. */
  readonly prohibited?: Prohibited;
  readonly observation: Observation;
}

export interface Agent {
  readonly agentId: string;
  /** Those that go away included. */
  readonly uplinks: readonly Uplink[];
  /** Connections to servers, those that go away left out. */
  readonly connected: number;
  /** How many servers it wants to be connected to. */
  readonly wanted: number;
  /** Dials and tunnels. */
  readonly open: number;
  /** Asks every server to dial elsewhere while it can; resolves when nothing runs here any more. */
  drain(): Promise<void>;
  /** Ends everything at once. */
  close(): Promise<void>;
}

/** Runs an agent: holds sessions to servers, opens the destinations they dial. */
export function agent(options: AgentOptions): Agent {
  return new RunningAgent(options);
}

class RunningAgent implements Agent {
  readonly agentId: string;
  readonly #options: AgentOptions;
  readonly #admission: Admission;
  readonly #reconciler: Reconciler;
  readonly #packetServers = new Set<string>();
  #closed = false;

  constructor(options: AgentOptions) {
    const { agentId, prohibited, observation } = options;
    this.#options = options;
    this.agentId = agentId;
    this.#admission = new Admission(
      refuseWhenScarce(endpointDial({ agentId, ...(prohibited && { prohibited }), ...observation })),
    );
    this.#reconciler = new Reconciler({
      ...options,
      clock: systemClock,
      events: observation.events,
      serverCount: (uplinks) => this.#serverCount(uplinks),
      // What comes after it may speak another protocol.
      closed: ({ address, port }) => this.#packetServers.delete(formatDestination({ host: address, port })),
      connect: (server, attempt) => connectUplink(server, { ...this.#uplinkOptions(), ...attempt }),
    });
  }

  get uplinks(): readonly Uplink[] {
    return this.#reconciler.uplinks;
  }

  get connected(): number {
    return this.uplinks.filter(({ leaving }) => !leaving).length;
  }

  get wanted(): number {
    return this.#reconciler.wanted;
  }

  get open(): number {
    return this.uplinks.reduce((sum, { open }) => sum + open, 0);
  }

  async drain(): Promise<void> {
    this.#reconciler.stop();
    for (const uplink of this.uplinks) uplink.drain();
    await new Promise((resolve) => setTimeout(resolve, DRAIN_SETTLE));
    while (this.open > 0 && !this.#closed) await new Promise((resolve) => setTimeout(resolve, 50));
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#reconciler.stop();
    for (const uplink of this.uplinks) uplink.destroy(new Error('agent stops'));
    await Promise.all(this.uplinks.map(({ closed }) => closed));
  }

  #serverCount(uplinks: readonly Uplink[]): number {
    const { leases, serverCountSource } = this.#options;
    const leased = leases?.();
    if (leased !== undefined && serverCountSource === 'default') return leased;
    // A server may say anything.
    const counts = uplinks.map(({ serverCount }) => (Number.isSafeInteger(serverCount) ? serverCount : 1));
    return serverCountSource === 'max' ? Math.max(leased ?? 1, ...counts) : (counts.at(-1) ?? 1);
  }

  #uplinkOptions(): Omit<UplinkOptions, 'membership' | 'leave' | 'timeout' | 'signal'> {
    const { agentId, identifiers, tenant, version, observation } = this.#options;
    return {
      ...this.#options,
      serverName: this.#options.server.host,
      packetServers: this.#packetServers,
      hello: { agentId, identifiers, tenant, version },
      dial: observed('agent', this.#admission.dial, observation),
      events: observation.events,
    };
  }
}
