import { extended, OpenTable, systemClock } from '@isthmus/runtime';
import { TUNNEL } from '../defaults.ts';
import type { DialRequest, Established, Stage, TunnelEnd } from '../dial.ts';
import { inTurns } from '../limits/in-turns.ts';
import { type AgentName, AgentProcess, type AgentSession, agentKey, type ProcessName } from '../sessions.ts';
import type { Resumable } from './carrier.ts';
import { type Attaching, GatewayTunnel, type GatewayTunnelsOptions, type SharedByTunnels } from './gateway-tunnel.ts';
import { halvesOf } from './halves.ts';

/** The tunnels of a gateway that can be resumed. */
export class GatewayTunnels {
  readonly #shared: SharedByTunnels;
  readonly #instance: string;
  /** By agent: its processes that have tunnels. A change of the agent's sessions concerns these tunnels. */
  readonly #processes = new OpenTable<string, AgentProcess<GatewayTunnel>[]>();
  /** Agents whose sessions have changed in this turn of the event loop. */
  readonly #changed = new Set<string>();

  constructor(options: GatewayTunnelsOptions) {
    this.#instance = options.instance;
    const halves = halvesOf(options, options.clock ?? systemClock);
    const attachInTurn = inTurns(({ start }: Attaching) => start(), {
      startsATurn: TUNNEL.attachStartsATurn,
      young: TUNNEL.youngAttaches,
    });
    this.#shared = { ...options, halves, attachInTurn, gone: (tunnel, process) => this.#gone(tunnel, process) };
    const changed = (session: AgentSession['record']) => this.#checkSoon(session);
    const came = (session: AgentSession['record']) => {
      for (const process of this.#ofAgent(session)) process.came(session);
      changed(session);
    };
    options.directory.watch({ came, went: changed, changed });
  }

  /** Lets the tunnels of dials be resumed if their agents can. */
  readonly resume: Stage = (next) => (dial) => {
    dial.resume = { direct: true, gateway: this.#instance };
    return next(dial).then((established) => {
      const { resume } = established;
      return resume ? extended(established, { end: this.#begin(dial, established, resume) }) : established;
    });
  };

  *[Symbol.iterator](): Iterator<GatewayTunnel> {
    for (const processes of this.#processes.values()) for (const { tunnels } of processes) yield* tunnels;
  }

  /** Bytes that new carriers would have to send again. Summed up at each call. */
  get kept(): number {
    let bytes = 0;
    for (const tunnel of this) bytes += tunnel.kept;
    return bytes;
  }

  #begin(dial: DialRequest, session: Established, { grant, carrier }: Resumable): TunnelEnd {
    const process = this.#process({ tenant: dial.tenant, agentId: session.agentId, instance: grant.instance });
    const tunnel = new GatewayTunnel({ shared: this.#shared, dial, session, secret: grant.secret, process });
    process.tunnels.add(tunnel);
    tunnel.start(carrier());
    return tunnel;
  }

  #process(name: ProcessName): AgentProcess<GatewayTunnel> {
    const processes = this.#ofAgent(name);
    const known = processes.find(({ name: { instance } }) => instance === name.instance);
    if (known) return known;
    const { directory, halves } = this.#shared;
    const process = new AgentProcess<GatewayTunnel>(name, directory, halves.clock);
    this.#processes.set(agentKey(name), [...processes, process]);
    return process;
  }

  #ofAgent(agent: AgentName): readonly AgentProcess<GatewayTunnel>[] {
    return this.#processes.get(agentKey(agent)) ?? [];
  }

  #gone(tunnel: GatewayTunnel, process: AgentProcess<GatewayTunnel>): void {
    process.tunnels.delete(tunnel);
    if (process.tunnels.size > 0) return;
    const key = agentKey(tunnel);
    const others = this.#ofAgent(tunnel).filter((other) => other !== process);
    if (others.length > 0) this.#processes.set(key, others);
    else this.#processes.delete(key);
  }

  #checkSoon(session: AgentSession['record']): void {
    const key = agentKey(session);
    if (!this.#processes.has(key)) return;
    if (this.#changed.size === 0) setImmediate(() => this.#checkChanged());
    this.#changed.add(key);
  }

  /** Called once a turn, because a changed record is reported as a session that goes and one that comes. */
  #checkChanged(): void {
    const agents = [...this.#changed];
    this.#changed.clear();
    for (const key of agents) for (const process of this.#processes.get(key) ?? []) process.checkTunnels();
  }
}
