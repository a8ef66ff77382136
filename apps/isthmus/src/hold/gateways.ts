import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import type { GatewayPlace } from '@isthmus/flags';
import { printable, Queue, type TlsSettings, unlessGivenUp, within } from '@isthmus/runtime';
import type { ProgramLog } from '@isthmus/service';
import { type CutMessage, connectSecurely, KeptLink, LinkClient, requestHoldLink, TRANSPORT } from '@isthmus/transport';
import {
  type AgentRoutes,
  Arrivals,
  type Ask,
  asDialError,
  type Dial,
  DialAbort,
  DialError,
  formatDestination,
  type PlaneEvents,
  type ProcessName,
} from '@isthmus/tunnel';
import { ISTHMUS } from '../defaults.ts';

export interface GatewaysOptions {
  /** By their names, the one to prefer first. */
  readonly places: ReadonlyMap<string, GatewayPlace>;
  readonly tls: TlsSettings;
  /** Names this process to gateways and agents. */
  readonly instance: string;
  /** Names it to operators. */
  readonly name: string;
  /** Answers gateways' questions for operators. */
  readonly answer: Ask;
  readonly events: PlaneEvents;
  /** What an operator reads of the gateways. */
  readonly log: Pick<ProgramLog, 'info' | 'warn'>;
}

/**
 * The gateways of a plane as the callers' end sees them: each is a way to every agent's process. Dials and attaches take the first that has a
 * link and does not leave; while there is none, they wait.
 */
export class Gateways {
  readonly #gateways: readonly LinkedGateway[];
  readonly #arrivals = new Arrivals(() => {
    const text = `no gateway can be reached: ${this.failures || 'none has answered yet'}`;
    return new DialError('destination_unavailable', text, { retryable: true });
  });
  /** Tunnels that were cut and that no gateway was told of, with the time of each. */
  readonly #cuts = new Queue<{ readonly cut: Omit<CutMessage, 'agoMs'>; readonly at: number }>();
  #telling: NodeJS.Timeout | undefined;
  /** Called when a gateway has come, gone, or begun to leave. */
  #changed = () => {};
  /** Dials that a gateway has, and has not answered. */
  readonly #tries = new Set<Try>();
  /** Since when no gateway can be reached. Unset while one can. */
  #noneSince: number | undefined;
  readonly #log: GatewaysOptions['log'];

  constructor(options: GatewaysOptions) {
    this.#log = options.log;
    const changed = () => this.#check();
    this.#gateways = [...options.places].map(
      ([name, place]) => new LinkedGateway(name, place, { ...options, changed }),
    );
    options.events.on('tunnel:close', ({ dial, agentId, hubId, up, down }, { how, by, error }, ms) => {
      if (how !== 'cut') return;
      const reason = printable(error.message).slice(0, TRANSPORT.reasonCharacters);
      const where = { destination: formatDestination(dial.destination), agent: agentId, trace: dial.traceparent ?? '' };
      // To this process, the gateway is the hub.
      const names = { gateway: hubId, hold: options.name };
      const cut = { type: 'cut', dial: dial.id, by, reason, ...where, ...names, ms: Math.round(ms), up, down } as const;
      this.#cuts.push({ cut, at: performance.now() });
      if (this.#cuts.size > ISTHMUS.holdCutsKept) this.#cuts.shift();
      this.#tell();
    });
  }

  /** Those with a link. */
  get up(): number {
    return this.#gateways.filter(({ link }) => link).length;
  }

  /** Why each of the others cannot be reached. */
  get failures(): string {
    return this.#gateways.flatMap(({ link, failure }) => (link || !failure ? [] : failure)).join('; ');
  }

  /** Connects, and calls `changed` whenever the ways to agents have changed. */
  open(changed: () => void): void {
    this.#changed = changed;
    for (const gateway of this.#gateways) gateway.open();
  }

  /** Closes the links once what was told of cuts has left, which it bounds. */
  async close(): Promise<void> {
    clearTimeout(this.#telling);
    await within(Promise.all(this.#gateways.map(({ link }) => link?.flushed())), ISTHMUS.holdEndMs);
    for (const gateway of this.#gateways) gateway.close();
  }

  /** Tells a gateway what was cut, so that `isthmus cuts` has it: what its link takes now, and more in a while. */
  #tell(): void {
    if (this.#telling) return;
    for (;;) {
      const [link] = this.#best().map((gateway) => gateway.link);
      const next = this.#cuts.first;
      if (!link || !next) return;
      if (!link.sendCut({ ...next.cut, agoMs: Math.round(performance.now() - next.at) })) break;
      this.#cuts.shift();
    }
    this.#telling = setTimeout(() => {
      this.#telling = undefined;
      this.#tell();
    }, ISTHMUS.holdCutsAgainMs).unref();
  }

  /**
   * Dials through one gateway after the other until one answers for the plane. While there is none, the dial waits until its deadline. It leaves
   * a gateway that has become silent once there is a better one: the link of a silent gateway ends only after twice as long.
   */
  readonly dial: Dial = async (request) => {
    const tried = new Set<LinkedGateway>();
    let refusal: DialError | undefined;
    for (;;) {
      const [gateway] = this.#best(tried);
      const link = gateway?.link;
      if (!gateway || !link) {
        if (refusal) throw refusal;
        // All that were tried are lost or silent, but one may have come back meanwhile.
        if (this.#best().length === 0) await this.#arrivals.next(request);
        tried.clear();
        continue;
      }
      tried.add(gateway);
      const abort = new DialAbort();
      const given: Try = { gateway, tried, abort };
      const over = () => abort.abort(request.signal.reason);
      request.signal.addEventListener('abort', over);
      this.#tries.add(given);
      try {
        const established = await link.dial({ ...request, signal: abort });
        // The session that it chose may change at any time. To this process, the gateway is the session.
        return { ...established, sessionId: gateway.name, hubId: gateway.name };
      } catch (thrown) {
        const error = asDialError(thrown);
        if (request.signal.aborted) throw error;
        // It was left for another one.
        if (abort.aborted) continue;
        if (!error.retryable || error.expired) throw error;
        // A gateway that is gone has not refused anything.
        if (gateway.link === link && link.usable) refusal = error;
      } finally {
        this.#tries.delete(given);
        request.signal.removeEventListener('abort', over);
      }
    }
  };

  /** What tunnels need in order to go on: as a gateway has sessions of hubs, this process has gateways. */
  get routes(): AgentRoutes {
    return {
      directory: {
        ownHub: undefined,
        // `open` tells of changes, for all agents at once.
        watch() {},
        // A gateway has no name of a session: a tunnel that begins looks at all gateways.
        session: () => undefined,
        ofAgent: (agent) => this.#best().map((gateway) => sessionOf(gateway, agent)),
        forget() {},
        enter: () => () => {},
      },
      nextHop: (name) => this.#gateways.find((gateway) => gateway.name === name)?.link,
      suspects: { accuse() {} },
      route: ({ agent: agentId, tenant, instance, tried }) =>
        this.#best()
          .filter(({ name }) => !tried.has(name))
          .map((gateway) => ({ session: sessionOf(gateway, { agentId, tenant, instance }), rank: gateway })),
    };
  }

  /** Gateways with a link, best first: those that stay before those that leave. */
  #best(tried: ReadonlySet<LinkedGateway> = new Set()): readonly LinkedGateway[] {
    const usable = this.#gateways.filter((gateway) => gateway.link?.usable && !tried.has(gateway));
    return usable.sort((a, b) => Number(a.draining) - Number(b.draining));
  }

  #check(): void {
    const reachable = this.#best().length > 0;
    if (reachable && this.#noneSince !== undefined) {
      const seconds = ((performance.now() - this.#noneSince) / 1000).toFixed(1);
      this.#log.info({ seconds }, 'a gateway can be reached again');
      this.#noneSince = undefined;
    } else if (!reachable && this.#noneSince === undefined) {
      this.#noneSince = performance.now();
      this.#log.warn({ text: this.failures }, 'no gateway can be reached: dials and tunnels wait');
    }
    if (reachable) this.#arrivals.came();
    for (const { gateway, tried, abort } of this.#tries)
      if (gateway.link?.silent && this.#best(tried).some(({ draining }) => !draining)) abort.abort();
    this.#tell();
    this.#changed();
  }
}

function sessionOf({ name, draining }: LinkedGateway, { tenant, agentId, instance }: ProcessName) {
  return { record: { tenant, agentId, instance, sessionId: name, hubId: name }, state: { draining } };
}

/** A dial at a gateway. */
interface Try {
  readonly gateway: LinkedGateway;
  /** All that the dial was at. */
  readonly tried: ReadonlySet<LinkedGateway>;
  readonly abort: DialAbort;
}

interface GatewayOptions extends GatewaysOptions {
  readonly changed: () => void;
}

/** One gateway, and the link to it, which is opened again for as long as this process runs. */
class LinkedGateway {
  readonly name: string;
  readonly #place: GatewayPlace;
  readonly #options: GatewayOptions;
  #kept: KeptLink<LinkClient> | undefined;

  constructor(name: string, place: GatewayPlace, options: GatewayOptions) {
    this.name = name;
    this.#place = place;
    this.#options = options;
  }

  get link(): LinkClient | undefined {
    return this.#kept?.link;
  }

  /** Why it was not reached, or how it was lost. */
  get failure(): string | undefined {
    const failure = this.#kept?.failure;
    return failure && `${this.name}: ${failure.error.message}`;
  }

  /** Whether another is better: it leaves, or has said nothing for long. */
  get draining(): boolean {
    return this.link?.leaves || this.link?.silent || false;
  }

  open(): void {
    const { log, changed, events } = this.#options;
    const { name: gateway } = this;
    this.#kept = new KeptLink({
      mostPauseMs: () => ISTHMUS.holdConnectAgainMostMs,
      fault: (error) => events.emit('fault', 'gateways', `gateway ${gateway}`, error),
      open: (signal) => this.#linked(signal),
      opened() {
        log.info({ gateway }, 'gateway connected');
        changed();
      },
      lost({ message }) {
        log.warn({ gateway, reason: message }, 'gateway lost');
        changed();
      },
      failed({ message }, again) {
        // It is tried several times a second.
        if (!again) log.warn({ gateway, text: message }, 'gateway cannot be reached');
        changed();
      },
    });
  }

  close(): void {
    this.#kept?.stop();
    this.link?.destroy(new Error('isthmus hold stops'));
  }

  async #linked(signal: AbortSignal): Promise<LinkClient> {
    const { events, instance, name, answer, changed } = this.#options;
    const timeout = ISTHMUS.holdConnectMs;
    const socket = await this.#reach(signal);
    const peer = `gateway ${this.name}`;
    try {
      await unlessGivenUp(socket, () => requestHoldLink(socket, timeout), { signal });
    } catch (error) {
      socket.destroy();
      throw error;
    }
    const link = new LinkClient({
      ...{ socket, peer, to: 'gateway', gatewayInstance: instance, events },
      member: { id: name, answer },
      receive: ({ type }) => void (type === 'drain' && changed()),
      suspected: changed,
    });
    await link.accepted({ timeout, signal });
    return link;
  }

  async #reach(signal: AbortSignal): Promise<Socket> {
    if ('path' in this.#place) {
      const { path } = this.#place;
      const socket = net.connect({ path, allowHalfOpen: true });
      await once(socket, 'connect');
      return socket.on('error', () => {});
    }
    const { tls } = this.#options;
    const names = [this.#place.host];
    const timeout = ISTHMUS.holdConnectMs;
    return connectSecurely(this.#place, { tls, names, ALPNProtocols: ['http/1.1'], timeout, signal });
  }
}
