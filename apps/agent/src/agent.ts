import { lookup } from 'node:dns/promises';
import { endpointDial, type HubMember, type TlsSettings } from '@isthmus/transport';
import { Admission, Backoff, formatDestination, type Observation, observed } from '@isthmus/tunnel';
import { type Coverage, candidates, wanted } from './coverage.ts';
import { connectUplink, type ServerAddress, type Uplink } from './uplink.ts';

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
  /** Which count holds when servers that share no plane differ: the last one's, or the greatest. */
  readonly serverCountSource: 'default' | 'max';
  /** Counts the servers' leases; unset when the servers themselves are believed. */
  readonly leases?: () => number;
  /** Between tries to connect, in milliseconds: at first, and at most. */
  readonly syncInterval: number;
  readonly syncIntervalCap: number;
  /** Looks for further servers even when as many as there should be are connected. */
  readonly syncForever: boolean;
  readonly keepaliveTime: number;
  readonly observation: Observation;
}

export interface Agent {
  readonly agentId: string;
  readonly uplinks: readonly Uplink[];
  /** How many servers it wants to be connected to. */
  readonly wanted: number;
  /** Dials and tunnels. */
  readonly open: number;
  /** Asks every server to dial elsewhere while it can; resolves when nothing runs here any more. */
  drain(): Promise<void>;
  /** Ends everything at once. */
  close(): Promise<void>;
}

/** A connection that lasted this long shows that the server is well, in milliseconds. */
const STABLE = 10_000;

/** When a connection of several is lost, the others carry on, and the herd of agents that lost the same server spreads out. */
const STAGGER = 2000;

/** After DRAIN, how long dials that were already on their way may still come, in milliseconds. */
const DRAIN_SETTLE = 1000;

/** Runs an agent: holds sessions to servers, opens the destinations they dial. */
export function agent(options: AgentOptions): Agent {
  return new RunningAgent(options);
}

class RunningAgent implements Agent {
  readonly agentId: string;
  readonly #options: AgentOptions;
  readonly #admission: Admission;
  readonly #uplinks = new Set<Uplink>();
  readonly #packetServers = new Set<string>();
  readonly #backoff: Backoff;
  #members: readonly HubMember[] = [];
  #attempts = 0;
  /** Attempts since the last that found a new server. */
  #misses = 0;
  #timer: NodeJS.Timeout | undefined;
  #connecting = false;
  #draining = false;
  #closed = false;

  constructor(options: AgentOptions) {
    this.#options = options;
    this.agentId = options.agentId;
    this.#admission = new Admission(endpointDial({ agentId: options.agentId, events: options.observation.events }));
    this.#backoff = new Backoff(options.syncInterval, options.syncIntervalCap);
    void this.#sync();
  }

  get uplinks(): readonly Uplink[] {
    return [...this.#uplinks];
  }

  get wanted(): number {
    return wanted(this.#coverage());
  }

  get open(): number {
    return this.uplinks.reduce((sum, { open }) => sum + open, 0);
  }

  async drain(): Promise<void> {
    this.#draining = true;
    for (const uplink of this.#uplinks) uplink.drain();
    await new Promise((resolve) => setTimeout(resolve, DRAIN_SETTLE));
    while (this.open > 0 && !this.#closed) await new Promise((resolve) => setTimeout(resolve, 50));
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    for (const uplink of this.#uplinks) uplink.destroy(new Error('agent stops'));
    await Promise.all(this.uplinks.map(({ closed }) => closed));
  }

  #coverage(): Coverage {
    const { agentId, zone, sessionCount } = this.#options;
    const uplinks = this.uplinks.filter(({ leaving }) => !leaving);
    return { agentId, zone, sessionCount, uplinks, members: this.#members, serverCount: this.#serverCount(uplinks) };
  }

  #serverCount(uplinks: readonly Uplink[]): number {
    const { leases, serverCountSource } = this.#options;
    if (leases) return leases();
    const counts = uplinks.map(({ serverCount }) => serverCount);
    return serverCountSource === 'max' ? Math.max(1, ...counts) : (counts.at(-1) ?? 1);
  }

  /** Connects once if there is a server to connect to, and comes back when that may have changed. */
  async #sync(): Promise<void> {
    if (this.#connecting || this.#closed || this.#draining) return;
    clearTimeout(this.#timer);
    const coverage = this.#coverage();
    const missing = wanted(coverage) - coverage.uplinks.length;
    this.#options.observation.events.emit('server:known', wanted(coverage));
    if (missing <= 0 && !this.#options.syncForever) {
      // Leases may come to count more servers at any time; a lost uplink and a new member wake the loop themselves.
      this.#wake(this.#options.syncIntervalCap);
      return;
    }
    this.#connecting = true;
    const isNew = await this.#connectNext(coverage);
    this.#connecting = false;
    this.#misses = isNew ? 0 : this.#misses + 1;
    this.#wake(isNew ? 0 : this.#backoff.next());
  }

  #wake(ms: number): void {
    if (this.#closed) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#sync(), ms);
  }

  /** @returns whether a server was reached that was not connected yet */
  async #connectNext(coverage: Coverage): Promise<boolean> {
    const { observation } = this.#options;
    let server: ServerAddress | undefined;
    try {
      server = await this.#choose(coverage);
      return this.#adopt(await connectUplink(server, this.#uplinkOptions()));
    } catch (error) {
      const { host, port } = this.#options.server;
      const at = server ? `${server.address}:${server.port}` : `${host}:${port}`;
      observation.events.emit('server:failure', at, 'to_server', error as Error);
      return false;
    }
  }

  /** The plane's hubs by rank and the configured server in turn; that one first while nothing is connected. */
  async #choose(coverage: Coverage): Promise<ServerAddress> {
    const hubs = candidates(coverage);
    const order = coverage.uplinks.length > 0 ? [...hubs, undefined] : [undefined, ...hubs];
    const hub = order[this.#misses % order.length];
    if (hub) return hub;
    const { host, port } = this.#options.server;
    const addresses = await lookup(host, { all: true });
    const { address } = addresses[this.#attempts++ % addresses.length] as { address: string };
    return { address, port };
  }

  #uplinkOptions() {
    const { agentId, identifiers, tenant, version, observation } = this.#options;
    const dial = observed('agent', this.#admission.dial, observation);
    return {
      ...this.#options,
      serverName: this.#options.server.host,
      packetServers: this.#packetServers,
      hello: { agentId, identifiers, tenant, version },
      dial,
      events: observation.events,
      membership: (hubs: readonly HubMember[]) => {
        this.#members = hubs;
        this.#wake(0);
      },
      leave: () => this.#wake(0),
    };
  }

  /** Keeps a connection, unless its server is connected already: then the older one stays, as servers expect it. */
  #adopt(uplink: Uplink): boolean {
    const { serverId, protocol, server } = uplink;
    const { events } = this.#options.observation;
    // A server that leaves may come back under its id while its last tunnels still run.
    const known = this.uplinks.some((other) => other.serverId === serverId && !other.leaving);
    if (this.#closed || this.#draining || known) {
      uplink.destroy(new Error(known ? 'server is connected already' : 'agent stops'));
      return false;
    }
    const since = performance.now();
    this.#uplinks.add(uplink);
    const address = `${server.address}:${server.port}`;
    events.emit('server:open', { address, serverId, protocol });
    void uplink.closed.then((reason) => {
      this.#uplinks.delete(uplink);
      // Its successor may speak another protocol.
      this.#packetServers.delete(formatDestination({ host: server.address, port: server.port }));
      if (reason && !uplink.leaving && !this.#closed) events.emit('server:failure', address, 'from_server', reason);
      events.emit('server:close', { address, serverId }, reason?.message ?? 'closed');
      this.#wake(this.#pause(performance.now() - since));
    });
    return true;
  }

  /** How long to wait after a lost connection that lasted `lived` milliseconds. */
  #pause(lived: number): number {
    if (lived < STABLE) return this.#backoff.next();
    this.#backoff.reset();
    return this.#uplinks.size === 0 ? 0 : Math.random() * STAGGER;
  }
}
