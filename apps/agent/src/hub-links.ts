import { guarding, unlessGivenUp } from '@isthmus/runtime';
import { API_SERVER, KeptLink, LinkClient, LinkRefused, requestLink, TRANSPORT } from '@isthmus/transport';
import {
  type AgentRoutes,
  Arrivals,
  asDialError,
  DIRECT,
  type DialAbort,
  DialError,
  type DialRequest,
  type Established,
  HUB_SERVER_NAME,
  type PlaneEvents,
  type ProcessName,
} from '@isthmus/tunnel';
import { AGENT } from './defaults.ts';
import { type ConnectOptions, connectServer, namesOf, type Uplink, type UplinkOptions } from './uplink.ts';

export interface HubLinksOptions
  extends Omit<ConnectOptions, 'timeout' | 'signal'>,
    Pick<UplinkOptions, 'token' | 'hello'> {
  /** Names this process to hubs. */
  readonly instance: string;
  readonly events: PlaneEvents;
}

/** A client that waits for its API server. */
export interface ClientRequest {
  readonly id: string;
  /** In milliseconds of `performance.now()`. */
  readonly deadline: number;
  readonly signal: DialAbort;
}

/**
 * The agent's own links to hubs, by which its clients reach the API server: one beside each session. If a gateway has the half beside the API server, a
 * tunnel goes on through any hub; if the hub has it, through another link to the same one.
 */
export class HubLinks {
  readonly #options: HubLinksOptions;
  readonly #links = new Set<HubLink>();
  readonly #arrivals = new Arrivals(() => {
    const text = `no hub can be reached: ${this.failures || 'none has answered yet'}`;
    return new DialError('destination_unavailable', text);
  });
  #changed = () => {};

  constructor(options: HubLinksOptions) {
    this.#options = options;
  }

  /** Calls `changed` whenever there may be another way to a hub. */
  watch(changed: () => void): void {
    this.#changed = changed;
  }

  /** Keeps a link to the server of a session for as long as the session. */
  follow(uplink: Uplink): void {
    if (uplink.protocol !== 'link') return;
    const link = new HubLink(uplink, this.#options, () => this.#check());
    this.#links.add(link);
    const guarded = guarding((error) => this.#options.events.emit('fault', 'api-server link', '', error));
    const ended = () => {
      void link.close().then(() => this.#links.delete(link));
      this.#check();
    };
    void uplink.closed.then(guarded(ended));
  }

  /** Links that take connections. */
  get up(): number {
    return this.#best().length;
  }

  /** Why the others are not there. */
  get failures(): string {
    return [...this.#links].flatMap(({ client, failure }) => (client || !failure ? [] : failure)).join('; ');
  }

  /** Asks one hub after the other for the API server. While none can be reached, it waits until the deadline. */
  async dial(client: ClientRequest, resume: (dial: DialRequest) => void): Promise<[DialRequest, Established]> {
    const tried = new Set<HubLink>();
    let refusal: DialError | undefined;
    for (;;) {
      const link = this.#best().find((each) => !tried.has(each));
      if (!link?.client) {
        if (refusal) throw refusal;
        if (this.up === 0) await this.#arrivals.next(client);
        tried.clear();
        continue;
      }
      tried.add(link);
      const { client: hub } = link;
      const isLast = this.#best().every((each) => tried.has(each));
      const deadline = isLast ? client.deadline : Math.min(client.deadline, performance.now() + AGENT.apiServerTryMs);
      const dial: DialRequest = { ...client, deadline, tenant: link.tenant, destination: API_SERVER };
      resume(dial);
      try {
        const { id: sessionId, hubId } = link;
        const established = await hub.dial(dial);
        // To the tunnel's half here, the process with the half beside the API server is the agent.
        const agentId = established.agentId === DIRECT ? hubId : `${AT_GATEWAY}${established.agentId}`;
        return [dial, { ...established, agentId, sessionId, hubId }];
      } catch (thrown) {
        const error = asDialError(thrown);
        // Nothing of the client was sent anywhere, whatever failed: another hub may reach what this one cannot.
        if (client.signal.aborted || performance.now() >= client.deadline) throw error;
        link.failedAt = performance.now();
        // A hub that is gone has not refused anything.
        if (link.client === hub && hub.usable) refusal = error;
      }
    }
  }

  /** What tunnels need in order to go on. */
  get routes(): AgentRoutes {
    const to = ({ agentId }: Pick<ProcessName, 'agentId'>) =>
      [...this.#links].filter(({ client, hubId }) => client && (hubId === agentId || agentId.startsWith(AT_GATEWAY)));
    // A tunnel leaves a hub that is silent, or drains, while it can.
    const session = ({ tenant, agentId, instance }: ProcessName, { id: sessionId, hubId, client }: HubLink) => ({
      record: { tenant, agentId, instance, sessionId, hubId },
      state: { draining: !client?.usable || client.silent || client.leaves },
    });
    return {
      directory: {
        ownHub: undefined,
        // `watch` tells of changes, for all hubs at once.
        watch() {},
        session: () => undefined,
        ofAgent: (name) => to(name).map((link) => session(name, link)),
        forget() {},
        enter: () => () => {},
      },
      nextHop: (hubId) => this.#best().find((link) => link.hubId === hubId)?.client,
      suspects: { accuse() {} },
      route: ({ agent: agentId, tenant, instance, tried }) =>
        to({ agentId })
          .filter(({ id, client }) => client?.usable && !tried.has(id))
          .sort((a, b) => Number(a.client?.silent) - Number(b.client?.silent))
          .map((link) => ({ session: session({ agentId, tenant, instance }, link), rank: link })),
    };
  }

  /** Ends the links with what they carry. */
  destroy(reason: Error): void {
    for (const link of this.#links) link.destroy(reason);
  }

  /** Links that take connections: those whose hubs stay and are heard first, and of these the one with the fewest. */
  #best(): readonly HubLink[] {
    const usable = [...this.#links].filter(({ client }) => client?.usable);
    const open = ({ client }: HubLink) => client?.open ?? 0;
    return usable.sort((a, b) => Number(a.avoided) - Number(b.avoided) || open(a) - open(b));
  }

  #check(): void {
    if (this.up > 0) this.#arrivals.came();
    this.#changed();
  }
}

/** What begins the name of a gateway, where it stands for that of an agent. No hub's id has a space. */
const AT_GATEWAY = 'gateway ';

let links = 0;

/** A link to the server of one session, which is opened again for as long as the session runs. */
class HubLink {
  readonly id = `own-${++links}`;
  hubId = '';
  /** The agent's, as the hub has verified it. */
  tenant = '';
  /** When a dial through it failed last. */
  failedAt = Number.NEGATIVE_INFINITY;
  readonly #uplink: Uplink;
  readonly #options: HubLinksOptions;
  readonly #changed: () => void;
  readonly #kept: KeptLink<LinkClient>;

  constructor(uplink: Uplink, options: HubLinksOptions, changed: () => void) {
    this.#uplink = uplink;
    this.#options = options;
    this.#changed = changed;
    const hub = `hub ${uplink.serverId}`;
    // A session that is not kept ends in the tick in which it began.
    this.#kept = new KeptLink({
      mostPauseMs: (error) =>
        error instanceof LinkRefused ? AGENT.apiServerLinkRefusedMostMs : TRANSPORT.hubLinkAgainMostMs,
      open: (signal) => this.#open(signal),
      fault: (error) => options.events.emit('fault', 'api-server link', hub, error),
      opened: changed,
      lost: changed,
      failed(error, again) {
        if (!again) options.events.emit('refused', 'api-server link', hub, error);
        changed();
      },
    });
  }

  get client(): LinkClient | undefined {
    return this.#kept.link;
  }

  /** Why there is no link: it was not opened, or was lost. */
  get failure(): string | undefined {
    const { failure } = this.#kept;
    return failure && `hub ${this.#uplink.serverId}: ${failure.error.message}`;
  }

  /** Whether another is better: its hub leaves, is silent, or did not reach the API server just now. It would have the fewest connections. */
  get avoided(): boolean {
    const failed = performance.now() - this.failedAt < AGENT.apiServerAvoidMs;
    return this.#uplink.leaving || this.client?.leaves || this.client?.silent || failed;
  }

  /** Takes no more connections. Resolves when those that run have ended. */
  async close(): Promise<void> {
    this.#kept.stop();
    this.client?.close();
    await this.client?.closed;
  }

  destroy(reason: Error): void {
    this.#kept.stop();
    this.client?.destroy(reason);
  }

  async #open(signal: AbortSignal): Promise<LinkClient> {
    const { events, hello, instance } = this.#options;
    const { server } = this.#uplink;
    const timeout = AGENT.apiServerLinkMs;
    const socket = await connectServer(server, { ...this.#options, timeout, signal });
    const [host = HUB_SERVER_NAME] = namesOf(server, this.#options);
    const token = this.#options.token.current;
    try {
      const asked = { ...hello, link: 'apiServer', ...(token !== undefined && { token }) } as const;
      const answer = () => requestLink(socket, host, asked, timeout);
      const { hubId, tenant, renewal: renews, ping } = await unlessGivenUp(socket, answer, { signal });
      this.hubId = hubId;
      this.tenant = tenant;
      const link = new LinkClient({
        ...{ socket, peer: `hub ${hubId}`, to: 'api-server', gatewayInstance: instance, events },
        ...(ping && { ping }),
        receive: ({ type }) => {
          if (type === 'renewed') renewed?.();
          if (type === 'drain') this.#changed();
        },
        suspected: this.#changed,
      });
      const renewed = renews ? this.#options.token.follow(link, token) : undefined;
      return link;
    } catch (error) {
      socket.destroy();
      throw error;
    }
  }
}
