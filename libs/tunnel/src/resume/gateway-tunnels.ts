import { type Clock, extended, OpenTable, RandomSet, systemClock } from '@isthmus/runtime';
import type { Dial, DialRequest, TunnelEnd } from '../dial/dial.ts';
import { dialLog } from '../dial/dial-log.ts';
import { inTurns } from '../dial/in-turns.ts';
import type { Observation } from '../events/observe.ts';
import type { Directory } from '../replica/directory.ts';
import { agentKey } from '../replica/quarantine.ts';
import type { SessionRecord } from '../replica/records.ts';
import type { RankingOptions } from '../route/ranking.ts';
import type { Suspects } from '../route/suspects.ts';
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
  /** By agent: what happens to its sessions concerns them. */
  readonly #tunnels = new OpenTable<string, RandomSet<GatewayTunnel>>();
  /** Agents whose sessions have changed in this turn of the event loop. */
  readonly #changed = new Set<string>();

  constructor(options: GatewayTunnelsOptions) {
    this.#instance = options.instance;
    const halves = halvesOf(options, options.clock ?? systemClock);
    const attachInTurn = inTurns(({ start }: Attaching) => start(), ATTACHES);
    this.#shared = { ...options, halves, attachInTurn, gone: (tunnel) => this.#gone(tunnel) };
    const changed = (session: SessionRecord) => this.#lookAt(session);
    options.directory.watch({ came: changed, went: changed, changed });
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
    for (const tunnels of this.#tunnels.values()) yield* tunnels;
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
    const tunnel = new GatewayTunnel({ shared: this.#shared, dial, session, grant });
    this.#ofAgent(tunnel).add(tunnel);
    tunnel.start(open());
    return tunnel;
  }

  #ofAgent(tunnel: GatewayTunnel): RandomSet<GatewayTunnel> {
    const key = agentKey(tunnel);
    const tunnels = this.#tunnels.get(key) ?? new RandomSet<GatewayTunnel>();
    if (tunnels.size === 0) this.#tunnels.set(key, tunnels);
    return tunnels;
  }

  #gone(tunnel: GatewayTunnel): void {
    const key = agentKey(tunnel);
    const tunnels = this.#tunnels.get(key);
    tunnels?.delete(tunnel);
    if (tunnels?.size === 0) this.#tunnels.delete(key);
  }

  #lookAt(session: SessionRecord): void {
    const key = agentKey(session);
    if (!this.#tunnels.has(key)) return;
    if (this.#changed.size === 0) setImmediate(() => this.#look());
    this.#changed.add(key);
  }

  /** A changed record goes and comes, so looks once both have happened. */
  #look(): void {
    const agents = [...this.#changed];
    this.#changed.clear();
    for (const key of agents) for (const tunnel of [...(this.#tunnels.get(key) ?? [])]) tunnel.look();
  }
}
