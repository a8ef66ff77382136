import type { Socket } from 'node:net';
import { countIn, guarding, onceClosed, printable, within } from '@isthmus/runtime';
import {
  type Ask,
  type Attach,
  DialError,
  dialLog,
  formatDestination,
  type HeldTunnel,
  type Hold,
  parseDestination,
  type Tunnel,
  type TunnelInfo,
} from '@isthmus/tunnel';
import { WIRE } from '@isthmus/wire';
import type { CallerEdgeOptions } from '../connect.ts';
import { TRANSPORT } from '../defaults.ts';
import { CALLERS_GROWTH } from '../grpc/server.ts';
import { ask, type RequestHead, RequestRefused, reasonOf } from '../http1.ts';
import { peerOf, upgraded } from '../listen.ts';
import { readersOf, type SocketEnd } from '../socket-end.ts';
import { nothing } from './ask.ts';
import { Allowances, isRecord } from './control.ts';
import { isHexId, TENANT_FIELD } from './dial-heads.ts';
import { LinkServer } from './server.ts';
import { answerRefusal } from './upgrade.ts';

const HOLD_PATH = '/hold';

/** How `isthmus hold` asks for a link, where callers connect. A gateway without such links answers as to any GET. */
const REQUEST = `GET ${HOLD_PATH} HTTP/1.1\r\nhost: gateway\r\nconnection: upgrade\r\nupgrade: isthmus-hold\r\n\r\n`;

const ACCEPTED = 'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: isthmus-hold\r\n\r\n';

/** Hold is a caller: it is not trusted, and has as many streams on a link as by gRPC. So is an agent towards its API server. */
export const CALLER_LIMITS = {
  config: { streams: TRANSPORT.grpcStreams },
  rules: {
    groupField: TENANT_FIELD,
    countsAnswered: true,
    growth: { largest: WIRE.largestWindowBytes, budget: CALLERS_GROWTH, local: CALLERS_GROWTH },
  },
};

/**
 * Asks a gateway for a link that carries dials and attaches of held tunnels. Resolves when a `LinkClient` may begin on the socket.
 * @param timeout how long the answer may take, in milliseconds
 * @throws what the gateway says against it, or that something else answered
 */
export async function requestHoldLink(socket: Socket, timeout: number): Promise<void> {
  const { status, reason, fields } = await ask(socket, REQUEST, timeout);
  if (status === 101 && fields.get('upgrade') === 'isthmus-hold') return;
  const why = reasonOf(fields.get('isthmus-error') ?? reason);
  throw new Error(`it answered ${status} ${why}${status === 405 ? ': it serves no links of isthmus hold' : ''}`);
}

interface HoldLinksOptions extends CallerEdgeOptions {
  /** Passes an attach on, to the agent's process that it names. */
  readonly attach: Attach;
  /** Called with each tunnel that begins. */
  readonly held?: (tunnel: Tunnel) => void;
}

/** A gateway's links to processes of `isthmus hold`, which keep the callers' halves of tunnels. */
export class HoldLinks {
  readonly #options: HoldLinksOptions;
  readonly #links = new Map<LinkServer, Hold>();
  /** How many of them each tenant has. */
  readonly #ofTenant = new Map<string, number>();
  readonly #allowances = new Allowances();
  #told: { readonly all: Promise<readonly Hold[]>; readonly at: number } | undefined;
  #leaving = false;

  constructor(options: HoldLinksOptions) {
    this.#options = options;
  }

  /** Takes the connection of a request for such a link. @returns false for any other request */
  serve(end: SocketEnd, head: RequestHead): boolean {
    if (head.method !== 'GET' || head.target !== HOLD_PATH) return false;
    if (!head.fields.some(([name, value]) => name === 'upgrade' && value === 'isthmus-hold'))
      throw new RequestRefused(400, 'GET /hold without upgrade: isthmus-hold');
    const socket = upgraded(end, head);
    const failed = (error: Error) => {
      socket.destroy();
      this.#options.events.emit('fault', 'hold links', '', error);
    };
    guarding(failed)(() => this.#open(socket))();
    return true;
  }

  /** Those with links, and what they say of their tunnels. One that does not answer in time is as it was. */
  all(now = performance.now()): Promise<readonly Hold[]> {
    if (!this.#told || now - this.#told.at > TRANSPORT.heldMs) {
      const asked = [...this.#links.keys()].map((link) => this.#askOne(link));
      this.#told = { at: now, all: Promise.all(asked).then(() => [...this.#links.values()]) };
    }
    return this.#told.all;
  }

  async #askOne(link: LinkServer): Promise<void> {
    try {
      const signal = AbortSignal.timeout(TRANSPORT.heldMs);
      const told = await readHeld(link.ask({ ...HELD, operator: { identity: '', remote: '' } }, signal));
      const known = this.#links.get(link);
      if (known) this.#links.set(link, { ...known, ...told });
    } catch {
      // It is older than these questions, or hangs.
    }
  }

  /** Asks them to use other gateways, then closes the links. What has no other gateway waits for the next one. */
  async leave(): Promise<void> {
    this.#leaving = true;
    for (const link of this.#links.keys()) link.drain();
    await within(Promise.all([...this.#links.keys()].map(({ closed }) => closed)), TRANSPORT.holdMovesMs);
    this.close();
  }

  /** Closes the links. Their tunnels go on through other gateways. */
  close(): void {
    this.#leaving = true;
    for (const link of this.#links.keys()) link.destroy(new Error('the gateway leaves'));
  }

  #open(socket: Socket): undefined {
    const { identifyCaller, events, dial, attach, held, halfClosedMs, timeout } = this.#options;
    let link: LinkServer | undefined;
    const peer = peerOf(socket, (reason) => {
      if (link) link.destroyAndTell(reason);
      else socket.destroy();
    });
    const refuse = (status: number, error: Error): undefined => {
      events.emit('refused', 'hold links', peer.remote, error);
      answerRefusal(socket.resume(), status, error);
    };
    if (this.#leaving) return refuse(503, new Error('this gateway is leaving'));
    const who = identifyCaller(peer);
    if (who instanceof Error) return refuse(who instanceof DialError ? who.status : 403, who);
    const { tenant, caller } = who;
    const open = this.#ofTenant.get(tenant) ?? 0;
    if (open >= TRANSPORT.holdLinksOfTenant) {
      const text = `tenant ${tenant} has ${open} links of isthmus hold here, as many as it may: end some of these processes`;
      return refuse(503, new Error(text));
    }
    countIn(this.#ofTenant, tenant, 1);
    onceClosed(socket, () => countIn(this.#ofTenant, tenant, -1));
    socket.write(ACCEPTED);
    // What the other side says of its callers is a claim: its own credential decides.
    const dialler = { tenant, caller: { via: 'hold' as const, ...caller }, callerName: undefined, trial: undefined };
    const opened = new LinkServer({
      ...{ socket, peer: `hold ${caller.identity}`, role: 'gateway', dial, attach, events, halfClosedMs },
      enter: (request) => ({
        ...request,
        ...dialler,
        log: dialLog(),
        deadline: Math.min(request.deadline, performance.now() + timeout),
      }),
      limits: CALLER_LIMITS,
      allowance: this.#allowances.of(tenant),
      readers: readersOf(tenant),
      restricted: true,
      answer: nothing,
      ...(held && { begun: held }),
      receive: (message) => {
        if (message.type !== 'cut') return;
        const { dial: id, destination, agent: agentId, trace, type: _type, ...cut } = message;
        const traceparent = trace === '' ? undefined : trace;
        const dial = { id, tenant, destination: parseDestination(destination), caller: dialler.caller, traceparent };
        events.emit('hold:cut', { ...cut, dial, agentId });
      },
    });
    link = opened;
    const { remote } = peer;
    const since = Date.now();
    this.#links.set(opened, { name: '', version: '', tenant, caller: caller.identity, remote, since, tunnels: [] });
    void opened.closed.then(() => this.#links.delete(opened));
  }
}

/** What a gateway asks `isthmus hold`. */
export const HELD = { to: { member: 'hold' }, method: 'held', message: {}, reads: true } as const;

/** Returns what `isthmus hold` answers: who it is, and its tunnels, some in each answer. */
export function heldAnswers(name: string, version: string, tunnels: () => Iterable<TunnelInfo>): Ask {
  return async function* () {
    const all = [...tunnels()].slice(0, TRANSPORT.heldTunnels).map(heldOf);
    for (let at = 0; at === 0 || at < all.length; at += TRANSPORT.heldAtOnce)
      yield { name, version, tunnels: all.slice(at, at + TRANSPORT.heldAtOnce) };
  };
}

function heldOf({ dial, agentId: agent, since, up, down, resumable }: TunnelInfo) {
  const { attached = true, moves = 0, kept = 0 } = resumable ?? {};
  return {
    dial: dial.id,
    destination: formatDestination(dial.destination),
    agent,
    since,
    up,
    down,
    attached,
    moves,
    kept,
  };
}

/** Puts together the answers of one process, as far as they can be read. */
export async function readHeld(answers: AsyncIterable<unknown>): Promise<Pick<Hold, 'name' | 'version' | 'tunnels'>> {
  let [name, version] = ['', ''];
  const tunnels: HeldTunnel[] = [];
  for await (const answer of answers) {
    if (!isRecord(answer)) continue;
    [name, version] = [shortText(answer.name), shortText(answer.version)];
    const more = Array.isArray(answer.tunnels) ? answer.tunnels.flatMap((tunnel) => readTunnel(tunnel) ?? []) : [];
    tunnels.push(...more.slice(0, TRANSPORT.heldTunnels - tunnels.length));
  }
  return { name, version, tunnels };
}

function readTunnel(tunnel: unknown): HeldTunnel | undefined {
  if (!isRecord(tunnel) || typeof tunnel.dial !== 'string' || !isHexId(tunnel.dial)) return undefined;
  const { dial: dialId, destination, agent, attached } = tunnel;
  const [since = 0, up = 0, down = 0, moves = 0, kept = 0] = ['since', 'up', 'down', 'moves', 'kept'].map((name) =>
    countOf(tunnel[name]),
  );
  try {
    return {
      dialId,
      destination: parseDestination(shortText(destination)),
      agentId: shortText(agent),
      since,
      up,
      down,
      attached: attached === true,
      // Operators are told it as 32 bits: what does not fit would cost them the whole answer.
      moves: Math.min(moves, 2 ** 32 - 1),
      kept,
    };
  } catch {
    return undefined;
  }
}

function countOf(value: unknown): number {
  return Number.isSafeInteger(value) && Number(value) > 0 ? Number(value) : 0;
}

function shortText(value: unknown): string {
  return typeof value === 'string' ? printable(value.slice(0, TRANSPORT.reasonCharacters)) : '';
}
