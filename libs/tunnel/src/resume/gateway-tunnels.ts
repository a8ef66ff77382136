import { type Clock, extended, OpenTable, systemClock } from '@isthmus/runtime';
import type { Dial, DialRequest, TunnelEnd } from '../dial/dial.ts';
import { dialLog } from '../dial/dial-log.ts';
import { inTurns } from '../dial/in-turns.ts';
import type { Observation } from '../events/observe.ts';
import type { Directory } from '../replica/directory.ts';
import { agentKey } from '../replica/quarantine.ts';
import type { AgentName, SessionRecord } from '../replica/records.ts';
import type { RankingOptions } from '../route/ranking.ts';
import type { Suspects } from '../route/suspects.ts';
import { AgentProcess, type ProcessName } from './agent-process.ts';
import { GatewayTunnel, type SharedByTunnels } from './gateway-tunnel.ts';
import { halvesOf, type ResumeOptions } from './options.ts';
import type { OpenCarrier, ResumeAnswer, ResumeRequest } from './request.ts';

/**
 * Attaches that start in one turn of the event loop, and that are under way of one tenant. When a hub is lost, thousands want to at once.
 * Dials that come meanwhile start before them, 16 in each turn.
 */
const ATTACHES = { startsATurn: 4, young: 256 };

export interface GatewayTunnelsOptions extends ResumeOptions, RankingOptions {
  readonly directory: Directory;
  readonly suspects: Suspects;
  /** Names this process to hubs and agents: 16 hexadecimal digits. */
  readonly instance: string;
  /** The gateway's own zone. */
  readonly zone: string;
  readonly observation: Observation;
  readonly clock?: Clock;
}

/** An attach that waits for its turn. */
export interface Attaching {
  readonly tenant: string;
  readonly start: () => Promise<void>;
}

/** A gateway's tunnels that can be resumed. */
export class GatewayTunnels {
  readonly #shared: SharedByTunnels;
  readonly #instance: string;
  /** By agent: its processes to which there are tunnels. What happens to its sessions concerns them. */
  readonly #processes = new OpenTable<string, AgentProcess<GatewayTunnel>[]>();
  /** Agents whose sessions have changed in this turn of the event loop. */
  readonly #changed = new Set<string>();

  constructor(options: GatewayTunnelsOptions) {
    this.#instance = options.instance;
    const halves = halvesOf(options, options.clock ?? systemClock);
    const attachInTurn = inTurns(({ start }: Attaching) => start(), ATTACHES);
    this.#shared = { ...options, halves, attachInTurn, gone: (tunnel, process) => this.#gone(tunnel, process) };
    const changed = (session: SessionRecord) => this.#lookAt(session);
    const came = (session: SessionRecord) => {
      for (const process of this.#ofAgent(session)) process.came(session);
      changed(session);
    };
    options.directory.watch({ came, went: changed, changed });
  }

  /** Offers to resume the tunnels that a Dial opens. */
  resuming(dial: Dial): Dial {
    return (asked) => {
      // Attaches belong to the trace of the dial, not of the attempt that succeeded.
      const resume: ResumeRequest = {
        gateway: this.#instance,
        carry: (answer, open, attempt) => this.#begin(answer, open, asked, attempt),
      };
      return dial(extended(asked, { log: asked.log ?? dialLog(), resume }));
    };
  }

  *[Symbol.iterator](): Iterator<GatewayTunnel> {
    for (const processes of this.#processes.values()) for (const { tunnels } of processes) yield* tunnels;
  }

  /** Bytes that would be sent again on new carriers. Adds them up anew. */
  get kept(): number {
    let bytes = 0;
    for (const tunnel of this) bytes += tunnel.kept;
    return bytes;
  }

  #begin({ grant }: ResumeAnswer, open: OpenCarrier, dial: DialRequest, attempt: DialRequest): TunnelEnd {
    // Not from the directory: the session may have gone while its agent answered.
    const session = attempt.log?.attempts.find(({ sessionId }) => sessionId === attempt.session);
    if (!grant || !session) throw new Error(`no attempt was made through session ${attempt.session}`);
    const { tenant } = dial;
    const process = this.#process({ tenant, agentId: session.agentId, instance: grant.instance });
    const tunnel = new GatewayTunnel({ shared: this.#shared, dial, session, grant, process });
    process.tunnels.add(tunnel);
    tunnel.start(open());
    return tunnel;
  }

  #process(name: ProcessName): AgentProcess<GatewayTunnel> {
    const processes = this.#ofAgent(name);
    const known = processes.find(({ name: { instance } }) => instance === name.instance);
    if (known) return known;
    const { directory, halves } = this.#shared;
    const process = new AgentProcess<GatewayTunnel>({ name, directory, clock: halves.clock });
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

  #lookAt(session: SessionRecord): void {
    const key = agentKey(session);
    if (!this.#processes.has(key)) return;
    if (this.#changed.size === 0) setImmediate(() => this.#look());
    this.#changed.add(key);
  }

  /** A changed record goes and comes, so looks once both have happened. */
  #look(): void {
    const agents = [...this.#changed];
    this.#changed.clear();
    for (const key of agents) for (const process of this.#processes.get(key) ?? []) process.look();
  }
}
