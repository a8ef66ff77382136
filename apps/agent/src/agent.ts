import type { ApiServerListening } from '@isthmus/flags';
import { randomHex, resolveName, systemClock, type TlsSettings } from '@isthmus/runtime';
import type { Check } from '@isthmus/service';
import type { ProxyFor } from '@isthmus/transport';
import {
  AgentTunnels,
  type Ask,
  type Dial,
  DialLimiter,
  type DialPolicy,
  formatDestination,
  type Observation,
  type Prohibited,
  type ResumeOptions,
} from '@isthmus/tunnel';
import { ApiServerDoor } from './api-server-door.ts';
import { AGENT } from './defaults.ts';
import { HubLinks } from './hub-links.ts';
import { agentDial } from './pipeline.ts';
import { AgentToken } from './token.ts';
import { Upkeep } from './upkeep.ts';
import { connectUplink, type Uplink, type UplinkOptions } from './uplink.ts';

export interface AgentOptions {
  readonly agentId: string;
  /** URL query of what the agent can reach, as upstream's `--agent-identifiers`. */
  readonly identifiers: string;
  /** Empty: the tenant that its credential says. */
  readonly tenant: string;
  readonly zone: string;
  readonly version: string;
  /** Each is one server, a balancer before several, or a name that resolves to all of them. */
  readonly server: { readonly hosts: readonly string[]; readonly port: number };
  /** Unset: no TLS. */
  readonly tls?: TlsSettings;
  /** Unset: servers are reached directly. A proxy resolves their names. */
  readonly proxy?: ProxyFor;
  /** Further ALPN names to offer, for balancers that route by them. */
  readonly alpn: readonly string[];
  /** The service account token to present, read anew for each connection, because tokens are renewed in place. */
  readonly token: () => string | undefined;
  readonly sessionCount: number | 'all';
  /** Which count of servers without a plane is used: that of the leases, or else of the last server; or the largest of all. */
  readonly serverCountSource: 'default' | 'max';
  /** Counts the servers' leases. Unset: the servers' own counts are used. */
  readonly leases?: () => number;
  /** Pause between attempts to connect, in milliseconds: at first, and at most. */
  readonly syncInterval: number;
  readonly syncIntervalCap: number;
  /** Whether to look for further servers even when enough are connected. */
  readonly syncForever: boolean;
  /** Sessions move to better hubs within this time, in milliseconds; see docs/LIMITS.md. */
  readonly rebalanceTime: number;
  /** gRPC keepalive towards ANP's servers, in milliseconds. */
  readonly keepaliveTime: number;
  /** How long a link to a hub may be silent before either side asks, in milliseconds. Default: 1 s, at rest what the hub says. */
  readonly pingInterval?: number | undefined;
  /** Unset: tunnels end with the link that carries them. */
  readonly resume?: ResumeOptions;
  /** Where clients on this node reach the API server of the agent's tenant. Unset: nowhere. */
  readonly apiServer?: ApiServerListening | undefined;
  /** Decides which addresses are not dialled. */
  readonly prohibited?: Prohibited;
  /** The agent's own lists of what it dials, which no plane can overrule. */
  readonly lists?: DialPolicy;
  /** Leads a dial to where its destination is, for agents that are simulated and share one network. Default: sockets from here. */
  readonly network?: (endpoint: Dial) => Dial;
  /** Answers hubs' questions for operators. */
  readonly answer?: Ask | undefined;
  readonly observation: Observation;
}

/** A running agent: keeps sessions with servers and opens the destinations that they dial. */
export class Agent {
  readonly agentId: string;
  readonly #options: AgentOptions;
  readonly #limiter = new DialLimiter();
  readonly #upkeep: Upkeep;
  readonly #tunnels: AgentTunnels | undefined;
  readonly #packetServers = new Set<string>();
  readonly #token: AgentToken;
  readonly #looks: NodeJS.Timeout;
  readonly #hubLinks: HubLinks | undefined;
  readonly #door: ApiServerDoor | undefined;
  #draining = false;
  #closed = false;

  constructor(options: AgentOptions) {
    const { agentId, observation } = options;
    this.#options = options;
    this.agentId = agentId;
    this.#tunnels = options.resume && new AgentTunnels(options.resume);
    this.#token = new AgentToken(options.token);
    this.#looks = setInterval(() => this.#token.look(), AGENT.tokenLookMs).unref();
    const { apiServer, resume } = options;
    if (apiServer) {
      const instance = randomHex(8);
      const links = new HubLinks({ ...this.#uplinkOptions(), instance });
      this.#hubLinks = links;
      this.#door = new ApiServerDoor({ ...apiServer, agentId, links, instance, resume, observation });
    }
    this.#upkeep = new Upkeep({
      ...options,
      clock: systemClock,
      resolve: async (host, signal) => {
        const isProxied = options.proxy?.({ host, port: options.server.port }) !== undefined;
        return isProxied ? [host] : (await resolveName(host, signal)).map(({ address }) => address);
      },
      events: observation.events,
      serverCount: (uplinks) => this.#serverCount(uplinks),
      // What comes after it may speak another protocol.
      closed: ({ address, port }) => this.#packetServers.delete(formatDestination({ host: address, port })),
      connect: async (server, attempt) => {
        const uplink = await connectUplink(server, { ...this.#uplinkOptions(), ...attempt });
        if (this.#draining) uplink.drain();
        this.#hubLinks?.follow(uplink);
        return uplink;
      },
    });
  }

  /** Includes those that are leaving. */
  get uplinks(): readonly Uplink[] {
    return this.#upkeep.uplinks;
  }

  /** Connections to servers, without those that are leaving. */
  get connected(): number {
    return this.uplinks.filter(({ leaving }) => !leaving).length;
  }

  /** How many servers it wants to be connected to. */
  get wanted(): number {
    return this.#upkeep.wanted;
  }

  /** Dials and tunnels. */
  get open(): number {
    return this.uplinks.reduce((sum, { open }) => sum + open, 0);
  }

  /** Whether clients reach their API server through it; undefined if none may. */
  get apiServer(): Check | undefined {
    return this.#door?.check;
  }

  /** Listens where clients reach their API server. @throws the system's error */
  async listen(): Promise<void> {
    await this.#door?.listen();
  }

  /** Bytes that tunnels keep until their gateways have them; undefined if tunnels are not resumed. */
  get kept(): number | undefined {
    return this.#tunnels?.kept;
  }

  /**
   * Asks every server to dial elsewhere while it can. Resolves when no dial or tunnel is left. Until then it connects again if a server goes, as
   * that is how its tunnels go on.
   */
  async drain(): Promise<void> {
    this.#draining = true;
    for (const uplink of this.uplinks) uplink.drain();
    this.#door?.leave();
    await new Promise((resolve) => setTimeout(resolve, AGENT.drainSettleMs));
    // A tunnel may wait for another way.
    while (this.open + (this.#tunnels?.size ?? 0) + (this.#door?.open ?? 0) > 0 && !this.#closed)
      await new Promise((resolve) => setTimeout(resolve, AGENT.drainLookMs));
    this.#upkeep.stop();
  }

  /** Ends everything at once. */
  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#looks);
    this.#upkeep.stop();
    await this.#door?.close();
    this.#hubLinks?.destroy(new Error('agent stops'));
    for (const uplink of this.uplinks) uplink.destroy(new Error('agent stops'));
    await Promise.all(this.uplinks.map(({ closed }) => closed));
  }

  #serverCount(uplinks: readonly Uplink[]): number {
    const { leases, server, serverCountSource } = this.#options;
    const leased = leases?.();
    // A server may send anything. Operators are told 32 bits.
    const counts = uplinks.map(({ serverCount }) => (serverCount === serverCount >>> 0 ? serverCount : 1));
    const counted = serverCountSource === 'max' ? Math.max(leased ?? 1, ...counts) : (leased ?? counts.at(-1) ?? 1);
    // Each configured server is one of its own, also if it counts only itself.
    return Math.max(server.hosts.length, counted);
  }

  #uplinkOptions(): Omit<UplinkOptions, 'membership' | 'leave' | 'timeout' | 'signal'> {
    const { agentId, identifiers, tenant, version, pingInterval, observation } = this.#options;
    return {
      ...this.#options,
      token: this.#token,
      serverNames: this.#options.server.hosts,
      packetServers: this.#packetServers,
      ...(this.#tunnels && { tunnels: this.#tunnels }),
      hello: {
        agentId,
        identifiers,
        version,
        ...(this.#tunnels && { instance: this.#tunnels.instance }),
        ...(tenant !== '' && { tenant }),
        ...(pingInterval !== undefined && { pingSeconds: pingInterval / 1000 }),
      },
      dial: (rules) => agentDial({ ...this.#options, limiter: this.#limiter, rules }),
      events: observation.events,
    };
  }
}
