import type { BlockList, Socket } from 'node:net';
import net from 'node:net';
import type { ApiServerListening } from '@isthmus/flags';
import {
  addressOf,
  bind,
  descriptors,
  Grouped,
  guarding,
  isIP,
  isLoopback,
  LONGEST_TIMER,
  listeningAt,
  machineAddresses,
  memory,
  onceClosed,
  randomHex,
  remoteOf,
  SharedBudget,
  sourceOf,
} from '@isthmus/runtime';
import type { Check } from '@isthmus/service';
import { API_SERVER, HelloEnd, resetSocket } from '@isthmus/transport';
import {
  asDialError,
  type Destination,
  DialAbort,
  DialError,
  type DialRequest,
  formatDestination,
  GatewayTunnels,
  type Observation,
  type ResumeOptions,
  Tunnel,
} from '@isthmus/tunnel';
import { AGENT } from './defaults.ts';
import type { HubLinks } from './hub-links.ts';

interface ApiServerDoorOptions extends ApiServerListening {
  readonly agentId: string;
  readonly links: HubLinks;
  /** Names this process to hubs. */
  readonly instance: string;
  /** Unset: connections end with the link that carries them. */
  readonly resume?: ResumeOptions | undefined;
  readonly observation: Observation;
}

type Bound = Awaited<ReturnType<typeof bind>>;

/**
 * Where clients on a node, and in its pods, reach their API server by its address: each connection goes through a hub to the API server of the agent's
 * tenant, and nowhere else.
 */
export class ApiServerDoor {
  readonly #options: ApiServerDoorOptions;
  readonly #bound = new Map<Destination, Bound>();
  /** By source. */
  readonly #clients = new Grouped<Socket>();
  readonly #waiting = new SharedBudget(AGENT.apiServerWaiting, true);
  /** The randoms of clients' hellos. */
  readonly #hellos = new Set<string>();
  /** The last one whose connection had come from here, and until when its next ones are refused. */
  #leadsBack = { source: '', until: 0 };
  readonly #tunnels: GatewayTunnels | undefined;
  #leaves = false;
  #looks: NodeJS.Timeout | undefined;

  constructor(options: ApiServerDoorOptions) {
    this.#options = options;
    const { links, resume, instance, observation } = options;
    if (!resume) return;
    const timeoutMs = Math.min(resume.timeoutMs, AGENT.apiServerWaitMs);
    const tunnels = new GatewayTunnels({ ...links.routes, ...resume, timeoutMs, instance, observation });
    links.watch(() => tunnels.checkAll());
    this.#tunnels = tunnels;
  }

  /** Clients' connections. */
  get open(): number {
    return this.#clients.size;
  }

  get check(): Check {
    const { links } = this.#options;
    const { up, failures } = links;
    const left = this.#leaves && this.#bound.size === 0 ? 'another process listens now; ' : '';
    const counts = `${left}${this.open} connections, ${AGENT.apiServerWaiting - this.#waiting.left} of them wait for a hub`;
    const detail = up === 0 ? `no hub can be reached: ${failures || 'none has answered yet'}` : `${up} hubs; ${counts}`;
    return { name: 'api-server', ok: up > 0, detail };
  }

  /** @throws the system's error for an address that is not this machine's, or taken by a process that does not share it */
  async listen(): Promise<void> {
    const { places, observation } = this.#options;
    for (const place of places) {
      const server = net.createServer({ allowHalfOpen: true, pauseOnConnect: true });
      const bound = await bind(server, {
        at: { ...place, reusePort: true },
        limits: { enter: (socket) => this.#enter(socket) },
        failed: (error) => observation.events.emit('refused', 'api-server', formatDestination(place), error),
      });
      this.#bound.set(place, bound);
    }
  }

  /** Leaves each address to another process once one listens there. Until then this is the only door. */
  leave(): void {
    const { events } = this.#options.observation;
    const guarded = guarding((error) => events.emit('fault', 'api-server', '', error));
    const check = guarded(() => {
      for (const [place, bound] of this.#bound) {
        const turn = takeTurn(place);
        if (!turn) continue;
        const left = () => {
          this.#bound.delete(place);
          turn.close();
        };
        if (listeningAt(place) > 1) guarded(() => bound.stop().finally(left))();
        else turn.close();
      }
    });
    const look = () => {
      const start = performance.now();
      check();
      // The kernel lists all sockets of the node: what takes long is asked rarely, for tunnels run on.
      const ms = Math.max(AGENT.apiServerTakenLookMs, AGENT.apiServerTakenLookTimes * (performance.now() - start));
      if (this.#bound.size > 0) this.#looks = setTimeout(look, ms).unref();
    };
    if (this.#leaves) return;
    this.#leaves = true;
    look();
  }

  /** Resets what is left. */
  async close(): Promise<void> {
    clearTimeout(this.#looks);
    const closed = [...this.#bound.values()].map((bound) => bound.close());
    this.#bound.clear();
    for (const socket of this.#clients.all) resetSocket(socket);
    await Promise.all(closed);
  }

  /** Takes whom the flags allow. */
  #enter(socket: Socket): boolean {
    const { events } = this.#options.observation;
    const from = addressOf(socket) ?? '';
    const source = sourceOf(from);
    const refusal = this.#refusal(socket, from, source);
    if (refusal === undefined) {
      this.#take(socket, source);
      return true;
    }
    events.emit('refused', 'api-server', remoteOf(socket), new Error(refusal));
    socket.on('error', () => {}).resetAndDestroy();
    return false;
  }

  #refusal(socket: Socket, from: string, source: string): string | undefined {
    if (!isAllowed(from, this.#options.networks))
      return `${from} is not of this machine, and of none of the networks of --api-server-allow`;
    if (this.#leadsBack.source === source && performance.now() < this.#leadsBack.until)
      return `what ${source} sends came from here: the address of the API server leads back to this agent`;
    const own = this.#clients.of(source)?.size ?? 0;
    if (own >= AGENT.apiServerClientsOfSource) return `${own} connections from ${source} are open`;
    if (memory.scarce) return `too little memory: ${source} has ${own} connections`;
    // The last are for links to hubs, and for what hubs dial.
    if (own > descriptors.left) return `too many open files: ${source} has ${own} of them`;
    if (!this.#waiting.take(1, source))
      return `clients from ${source} that wait for a hub leave too few places to others`;
    descriptors.opened();
    this.#clients.add(source, socket);
    return undefined;
  }

  #take(socket: Socket, source: string): void {
    const { observation, links, agentId } = this.#options;
    const { events } = observation;
    const start = performance.now();
    socket.setNoDelay(true).on('error', () => {});
    const signal = new DialAbort();
    onceClosed(socket, () => {
      signal.abort(new DialError('connection_terminated', 'the client left'));
      this.#clients.delete(source, socket);
    });
    const remote = remoteOf(socket);
    const caller = { via: 'api-server', identity: remote, remote } as const;
    const request = { id: randomHex(8), deadline: start + AGENT.apiServerWaitMs, signal, caller };
    const fail = (thrown: unknown) => {
      const error = asDialError(thrown);
      const dial: DialRequest = { ...request, tenant: '', destination: API_SERVER };
      if (!signal.aborted) events.emit('api-server:failure', dial, error, performance.now() - start);
      resetSocket(socket);
    };
    const guarded = guarding((error) => {
      fail(error);
      events.emit('fault', 'api-server', remote, error);
    });
    const resume = (dial: DialRequest) => void this.#tunnels?.resume.enter(dial, NOT_WAITING);
    const reached = guarded(([dial, established]: Awaited<ReturnType<HubLinks['dial']>>) => {
      this.#waiting.give(1, source);
      try {
        this.#tunnels?.resume.answered?.(dial, established);
        if (signal.aborted) return established.end.abort(signal.reason);
        const end = new HelloEnd(socket, 'from', ({ random }) => this.#begins(socket, source, random));
        new Tunnel('agent', dial, end, { ...established, agentId }, events, LONGEST_TIMER);
        socket.resume();
      } catch (error) {
        established.end.abort(error as Error);
        throw error;
      }
    });
    const failed = guarded((error: unknown) => {
      this.#waiting.give(1, source);
      fail(error);
    });
    links.dial(request, resume).then(reached, failed);
  }

  /**
   * A hello that comes a second time has gone round. It goes on, to where it is known which address leads back, and the connection is reset. Until
   * then each connection makes the next one, so none of its source is taken.
   */
  #begins(socket: Socket, source: string, random: string): void {
    if (this.#hellos.has(random)) {
      this.#leadsBack = { source, until: performance.now() + AGENT.apiServerLedBackMs };
      return;
    }
    this.#hellos.add(random);
    onceClosed(socket, () => this.#hellos.delete(random));
  }
}

/**
 * Of the processes that leave an address, only the one whose turn it is looks and leaves: otherwise all leave it to each other. The system ends
 * the turn of a process that dies.
 * @returns undefined while it is another's turn
 */
function takeTurn(place: Destination): net.Server | undefined {
  const turn = net.createServer((socket) => socket.destroy()).on('error', () => {});
  turn.listen({ path: `\0isthmus-api-server-${formatDestination(place)}` });
  return turn.listening ? turn : undefined;
}

/** The stage that offers to resume a tunnel lets it go on at once. */
const NOT_WAITING = { goOn() {}, fail() {} };

/** Whether a client may use the agent's way. This machine always may. */
export function isAllowed(from: string, networks: BlockList): boolean {
  if (isLoopback(from) || networks.check(from, isIP(from) === 6 ? 'ipv6' : 'ipv4')) return true;
  const now = performance.now();
  if (now - own.at > AGENT.ownAddressesMs) own = { at: now, addresses: new Set(machineAddresses()) };
  return own.addresses.has(from);
}

/** What a stranger's connection costs must be little: to ask the system takes longer than all else. */
let own: { readonly at: number; readonly addresses: ReadonlySet<string> } = {
  at: Number.NEGATIVE_INFINITY,
  addresses: new Set(),
};
