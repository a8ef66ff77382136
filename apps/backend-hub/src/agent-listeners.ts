import type { BlockList, Socket } from 'node:net';
import { type Tenancy, TenantPorts } from '@isthmus/plane';
import { type TlsSettings, type WaitingConnections, type WaitingLimits, WaitingPool } from '@isthmus/runtime';
import { fromTheStart, type ListenAddress, type Listener, listen } from '@isthmus/transport';
import type { Observation } from '@isthmus/tunnel';

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

/** Connections to a tenant's own port that wait to be admitted, of those of all ports. */
const OWN_PORT_WAITING = 500;

export interface AgentListenersOptions {
  /** Where agents connect. Unset TLS: a proxy in front terminates it. */
  readonly agents: {
    readonly address: ListenAddress;
    readonly tls?: TlsSettings;
    readonly proxyNetworks?: BlockList | undefined;
  };
  /** Unset: one tenant, and one port. */
  readonly tenancy?: Tenancy;
  readonly limits: {
    /** Connections that wait to be admitted: in total, and from one source address. */
    readonly waiting: number;
    readonly waitingOfSource: number;
  };
  readonly observation: Observation;
}

/** What takes the connections, told apart by their first bytes. */
export interface AgentProtocols {
  /** Our agents'. */
  readonly link: (socket: Socket) => void;
  /** Go agents'. */
  readonly packets: NonNullable<Parameters<typeof listen>[0]['http2']>;
}

/** The port that accepted a connection. */
interface Door {
  /** The tenant whose own it is. */
  readonly tenant?: string;
  readonly strangers: WaitingConnections;
}

/** The ports where agents connect: the one of all tenants, and those that tenants have for themselves. */
export class AgentListeners {
  readonly #options: AgentListenersOptions;
  readonly #doors = new WeakMap<Socket, Door>();
  /** Of this port and tenants' own. */
  readonly #strangersPool: WaitingPool;
  /** Including ports of tenants that have none any more, while agents' sessions run there. */
  readonly #listeners = new Set<Listener>();
  #main: Listener | undefined;
  #own: TenantPorts<Listener> | undefined;

  constructor(options: AgentListenersOptions) {
    this.#options = options;
    this.#strangersPool = new WaitingPool(options.limits.waiting);
  }

  get address(): string {
    return this.#main?.address ?? '';
  }

  /** Why tenants' own ports cannot be opened. */
  get unopened(): readonly string[] {
    return this.#own?.problems ?? [];
  }

  /** Returns the tenant whose own port accepted a connection. */
  portOf(socket: Socket): string | undefined {
    return this.#doors.get(socket)?.tenant;
  }

  /** Call when the agent of a connection is admitted: it waits no longer. */
  admitted(socket: Socket): void {
    this.#doors.get(socket)?.strangers.leave(socket);
  }

  async start(protocols: AgentProtocols): Promise<void> {
    const { agents, observation, tenancy } = this.#options;
    const open = this.#opener(protocols);
    const choose = tenancy && { chooseTls: (serverName: string) => tenancy.chooseTls(serverName) };
    this.#main = await open({ ...agents, ...choose, events: observation.events });
    if (tenancy) await this.#openOwnPorts(tenancy, open);
  }

  async stop(): Promise<void> {
    await this.#own?.stop();
    await Promise.all([...this.#listeners].map((listener) => listener.stop()));
  }

  async close(): Promise<void> {
    await this.#own?.stop();
    await Promise.all([...this.#listeners].map((listener) => listener.close()));
  }

  #opener({ link, packets }: AgentProtocols): Open {
    const { tenancy } = this.#options;
    return async (port, tenant) => {
      const enter = (socket: Socket) => {
        const { strangers } = listener;
        this.#doors.set(socket, { strangers, ...(tenant !== undefined && { tenant }) });
      };
      const listener: Listener = await listen({
        ...port,
        asksOnly: tenancy !== undefined,
        name: 'agents',
        handshakeTimeout: HANDSHAKE_TIMEOUT,
        strangers: this.#strangers(tenant),
        strangersPool: this.#strangersPool,
        others: fromTheStart((socket) => {
          enter(socket);
          link(socket);
        }),
        http2(socket, first) {
          enter(socket);
          packets(socket, first);
        },
      });
      this.#listeners.add(listener);
      return listener;
    };
  }

  /** Opens and closes tenants' ports with their files. */
  async #openOwnPorts(tenancy: Tenancy, open: Open): Promise<void> {
    const { agents, observation } = this.#options;
    const { events } = observation;
    const host = 'host' in agents.address ? agents.address.host : '';
    const { proxyNetworks, tls } = agents;
    this.#own = new TenantPorts({
      tenancy,
      of: 'agents',
      open: ({ port = 0, tenant }, doorEvents) => {
        const shown = tls && { tls, followTls: tenancy.portTls(tenant, tls) };
        return open({ address: { host, port }, ...shown, proxyNetworks, events: doorEvents }, tenant);
      },
      // Sessions go on: an agent's credential says whose it is, wherever it came in.
      close: async (_door, listener) => {
        void listener.idle.then(() => this.#listeners.delete(listener));
        await listener.stop();
      },
      events,
    });
    await this.#own.look();
  }

  #strangers(tenant: string | undefined): WaitingLimits {
    const { waiting, waitingOfSource: mostOfSource } = this.#options.limits;
    const most = tenant === undefined ? waiting : Math.min(waiting, OWN_PORT_WAITING);
    const names = { most: '--max-waiting-agents', mostOfSource: '--max-waiting-agents-per-source' };
    return { most, mostOfSource, names, deadlineMs: ADMISSION_TIMEOUT };
  }
}

type Open = (
  port: Pick<Parameters<typeof listen>[0], 'address' | 'tls' | 'followTls' | 'chooseTls' | 'events' | 'proxyNetworks'>,
  tenant?: string,
) => Promise<Listener>;
