import type { Socket } from 'node:net';
import { guarding } from '@isthmus/runtime';
import { checkAgentId, checkName, NotAuthorised, toldOf } from '@isthmus/tunnel';
import type { Field, PingInterval } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import {
  answerLast,
  ask,
  copied,
  type HttpAnswer,
  percentDecoded,
  percentEncoded,
  quoted,
  type RequestHead,
  RequestRefused,
  reasonOf,
} from '../http1.ts';
import { AgentLimitError } from '../identifiers.ts';
import { type Accept, requests, upgraded } from '../listen.ts';
import { isHexId } from './dial-heads.ts';

/** The other side speaks HTTP/1.1 but refuses the link. `status` says whether it knows the protocol at all. */
export class LinkRefused extends Error {
  override readonly name = 'LinkRefused';
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/**
 * Returns the interval for an agent that asks for none; undefined for the usual one. A PING and its answer take 0.05 ms of processor time at
 * each end: 5,000 links with a PING in 1.25 s would take a fifth of a processor.
 * @param links how many links to agents the hub has
 */
export function pingAtRest(links: number): PingInterval | undefined {
  const seconds = Math.min(TRANSPORT.longestAtRestSeconds, 1 + Math.floor(links / TRANSPORT.linksPerPingStep));
  return seconds > 1 ? { seconds, atRest: true } : undefined;
}

/** The field of an agent's request, and of the answer: what the agent wants, or, to one that wants nothing, what counts at rest. */
const PING_FIELD = 'isthmus-ping';

/** Throws LinkRefused with this status for anything but whole seconds in range. Undefined without a field. */
function pingSecondsIn(fields: ReadonlyMap<string, string>, status: number): number | undefined {
  const text = fields.get(PING_FIELD);
  if (text === undefined || text === '') return undefined;
  const seconds = Number(text);
  if (/^\d{1,3}$/.test(text) && seconds >= 1 && seconds <= TRANSPORT.longestPingSeconds) return seconds;
  throw new LinkRefused(status, `${PING_FIELD} is ${quoted(text)}: want 1 to ${TRANSPORT.longestPingSeconds} seconds`);
}

/**
 * How an agent's connection becomes a link. The agent sends an HTTP/1.1 Upgrade request that says who it is, and the hub answers 101.
 * From then on, the agent is the HTTP/2 server on the socket that it dialled, and the hub is the client.
 */

export const LINK_PATH = '/isthmus/link';
export const LINK_PROTOCOL = 'isthmus-link/1';

/** The protocols of links that begin so, by what they are for. */
const LINKS = {
  /** Dials to the agent. The hub is the dialling side. */
  session: { path: LINK_PATH, protocol: LINK_PROTOCOL },
  /** Connections of the agent's clients to the API server of its tenant. The agent is the dialling side. */
  apiServer: { path: '/isthmus/api-server', protocol: 'isthmus-api-server/1' },
  /** The same connections, from a hub to a gateway, which asks for it as an agent asks for a session. The hub is the dialling side. */
  gateway: { path: '/isthmus/gateway', protocol: 'isthmus-gateway/1' },
} as const;

type LinkKind = keyof typeof LINKS;

/** Who asks, on each port. */
const OF_AGENTS: readonly LinkKind[] = ['session', 'apiServer'];
const OF_GATEWAYS: readonly LinkKind[] = ['gateway'];

export interface AgentHello {
  /** Of a gateway: its id in the plane. */
  readonly agentId: string;
  /** URL query, as upstream's `--agent-identifiers`. */
  readonly identifiers: string;
  /** The tenant that the agent claims. Unset: its credential decides. */
  readonly tenant?: string;
  readonly version: string;
  /** Service account token, without `Bearer`. */
  readonly token?: string;
  /** The agent's process, if its tunnels can be resumed (docs/RESUME.md): 16 hexadecimal digits. */
  readonly instance?: string;
  /** How long the link may be silent before either side sends a PING, in seconds: 1 to 300. Unset: 1, or longer at rest if the hub says so. */
  readonly pingSeconds?: number;
  /** What the link is for. Default: a session. */
  readonly link?: LinkKind;
}

export interface HubHello {
  readonly hubId: string;
  readonly sessionId: string;
  /** The agent's tenant, as the hub has verified it. The agent serves only this tenant's dials. */
  readonly tenant: string;
  /** Whether the tenant's dial rules follow as a `policy` message. The agent serves no dial before it has them. */
  readonly policy?: boolean;
  /** Whether the hub accepts fresh tokens over the link, because the session's token expires. */
  readonly renewal?: boolean;
  /** The agent's `pingSeconds`; for an agent that has none, what counts at rest. Unset: the usual interval. */
  readonly ping?: PingInterval;
  /** Names the plane that the hub shares with others. Empty if it stands alone. */
  readonly plane: string;
  /** How many servers an agent should look for. */
  readonly serverCount: number;
}

/** The tenant of peers that name none, if no tenants are configured. */
export const DEFAULT_TENANT = 'default';

/**
 * Agent's side: asks for a link on a connected socket. Rejects with LinkRefused if the answer is not 101 or names no hub.
 * @param timeout how long the hub may take to answer, in milliseconds
 */
export async function requestLink(socket: Socket, host: string, hello: AgentHello, timeout: number): Promise<HubHello> {
  const { path, protocol } = LINKS[hello.link ?? 'session'];
  const lines = [
    `GET ${path} HTTP/1.1`,
    `host: ${host}`,
    'connection: upgrade',
    `upgrade: ${protocol}`,
    `isthmus-agent: ${encodeURIComponent(hello.agentId)}`,
    `isthmus-identifiers: ${encodeURIComponent(hello.identifiers)}`,
    `isthmus-version: ${encodeURIComponent(hello.version)}`,
  ];
  if (hello.tenant !== undefined) lines.push(`isthmus-tenant: ${encodeURIComponent(hello.tenant)}`);
  if (hello.token !== undefined) lines.push(`authorization: Bearer ${hello.token}`);
  if (hello.pingSeconds !== undefined) lines.push(`${PING_FIELD}: ${hello.pingSeconds}`);
  if (hello.instance !== undefined) lines.push(`isthmus-instance: ${hello.instance}`);
  const head = await ask(socket, `${lines.join('\r\n')}\r\n\r\n`, timeout);
  if (head.status !== 101) throw await refusal(socket, head);
  const named = namesIn(head.fields, head.status, "the answer's ");
  const hubId = named('isthmus-hub');
  if (hubId === '')
    throw new LinkRefused(101, "the answer names no hub: something else than a hub's agent port answered");
  const seconds = pingSecondsIn(head.fields, head.status);
  return {
    hubId,
    sessionId: named('isthmus-session'),
    tenant: tenantOf(named('isthmus-tenant'), hello.tenant),
    ...(head.fields.get('isthmus-policy') === '?1' && { policy: true }),
    ...(head.fields.get('isthmus-renewal') === '?1' && { renewal: true }),
    ...(seconds !== undefined && { ping: { seconds, atRest: hello.pingSeconds === undefined } }),
    plane: named('isthmus-plane'),
    serverCount: Number(head.fields.get('isthmus-server-count') ?? 1),
  };
}

/** Hubs of earlier versions name no tenant, because they believe the agent. */
function tenantOf(answered: string, claimed: string | undefined): string {
  const tenant = answered || (claimed ?? DEFAULT_TENANT);
  if (claimed === undefined || claimed === tenant) return tenant;
  throw new LinkRefused(101, `the hub takes this agent for one of tenant ${tenant}, and --tenant is ${claimed}`);
}

/** Reads the percent-encoded fields of a head. What it returns throws LinkRefused with this status. @param of whose the fields are, for errors */
function namesIn(fields: ReadonlyMap<string, string>, status: number, of = '') {
  return (name: string, check: (field: string, text: string) => string = checkName): string => {
    const value = fields.get(name) ?? '';
    const text = percentDecoded(value);
    if (text === undefined) throw new LinkRefused(status, `${of}${name} is not percent-encoded: ${quoted(value)}`);
    try {
      return check(`${of}${name}`, text);
    } catch (error) {
      throw new LinkRefused(status, (error as Error).message);
    }
  };
}

async function refusal(socket: Socket, head: HttpAnswer): Promise<LinkRefused> {
  const text = head.fields.get('isthmus-error');
  socket.destroy();
  return new LinkRefused(head.status, text ? reasonOf(text) : `answered with status ${head.status}`);
}

/** @typeParam A the answer, with whatever else the hub has found out */
interface UpgradeServerOptions<A extends HubHello> {
  /** Whether gateways ask, and not agents. */
  readonly gateways?: boolean;
  /** Decides on a hello. Rejects with LinkRefused, whose status is answered, NotAuthorised (403), AgentLimitError (429), or any error (500). */
  readonly admit: (hello: AgentHello, socket: Socket) => Promise<A>;
  /** Called when the socket is ready for a link. May throw to end it after all. */
  readonly open: (socket: Socket, hello: AgentHello, answer: A) => void;
  readonly refused: (socket: Socket, error: Error) => void;
  /** Called for a defect of ours that has ended the connection. */
  readonly fault: (socket: Socket, error: Error) => void;
}

/** Hub's side: accepts connections on which an agent asks for a link. */
export function upgradeServer<A extends HubHello>(options: UpgradeServerOptions<A>): Accept {
  const failed = (socket: Socket, error: Error) => {
    socket.destroy();
    options.fault(socket, error);
  };
  const refuse = (socket: Socket, error: Error) => {
    options.refused(socket, error);
    answerRefusal(socket, statusOf(error), error);
  };
  const admit = async (socket: Socket, hello: AgentHello) => {
    let answered = false;
    try {
      const answer = await options.admit(hello, socket);
      if (!socket.writable) throw new Error('the agent has closed its connection');
      answered = true;
      // It leaves with the link's first frames, in one write.
      socket.cork();
      setImmediate(() => socket.uncork());
      socket.write(acceptance(hello, answer));
      options.open(socket, hello, answer);
    } catch (error) {
      if (!answered) return refuse(socket.resume(), error as Error);
      options.refused(socket, error as Error);
      socket.destroy();
    }
  };
  return requests({
    serve(end, head) {
      const hello = readHello(head, options.gateways ? OF_GATEWAYS : OF_AGENTS);
      const socket = upgraded(end, head);
      guarding((error) => failed(socket, error))(() => admit(socket, hello))();
    },
    refuse: ({ stream }, error) => refuse(stream, error),
    fault: ({ stream }, error) => failed(stream, error),
  });
}

/** The fields that count. What else comes is not read, and may come twice. */
const OURS = /^(?:isthmus-.*|authorization|upgrade)$/;

function fieldsOf(head: RequestHead): ReadonlyMap<string, string> {
  const fields = new Map<string, string>();
  for (const [name, value] of head.fields) {
    if (fields.has(name) && OURS.test(name)) throw new LinkRefused(400, `${quoted(name)} comes twice`);
    fields.set(name, value);
  }
  return fields;
}

function readHello(head: RequestHead, kinds: readonly LinkKind[]): AgentHello {
  const { method, target: path } = head;
  const fields = fieldsOf(head);
  const protocol = method === 'GET' ? fields.get('upgrade') : undefined;
  if (protocol === undefined) {
    const whose = kinds === OF_AGENTS ? `agents: ${LINK_PROTOCOL} or gRPC` : 'gateways';
    throw new LinkRefused(404, `this port is for ${whose}, not ${quoted(method)}`);
  }
  const link = kinds.find((kind) => LINKS[kind].protocol === protocol && LINKS[kind].path === path);
  if (link === undefined) {
    const [usual] = kinds.map((kind) => LINKS[kind]);
    throw new LinkRefused(404, `this port serves ${usual?.protocol} at ${usual?.path}, not ${quoted(protocol)}`);
  }
  const field = (name: string) => fields.get(name) ?? '';
  if (field('isthmus-agent') === '') throw new LinkRefused(400, 'want exactly one agent id');
  const named = namesIn(fields, 400);
  const tenant = named('isthmus-tenant');
  const pingSeconds = pingSecondsIn(fields, 400);
  const token = /^Bearer (.+)$/.exec(field('authorization'))?.[1];
  return {
    agentId: named('isthmus-agent', checkAgentId),
    identifiers: named('isthmus-identifiers', (_, text) => text),
    version: named('isthmus-version'),
    link,
    ...(pingSeconds !== undefined && { pingSeconds }),
    ...instanceOf(field('isthmus-instance')),
    ...(tenant !== '' && { tenant }),
    ...(token !== undefined && { token: copied(token) }),
  };
}

/** Throws LinkRefused for anything but 16 hexadecimal digits. */
function instanceOf(text: string): { readonly instance?: string } {
  if (text === '') return {};
  if (isHexId(text)) return { instance: copied(text) };
  throw new LinkRefused(400, `isthmus-instance is ${quoted(text)}: want 16 hexadecimal digits`);
}

function acceptance({ link = 'session' }: AgentHello, hello: HubHello): string {
  const lines = [
    'HTTP/1.1 101 Switching Protocols',
    'connection: upgrade',
    `upgrade: ${LINKS[link].protocol}`,
    `isthmus-hub: ${encodeURIComponent(hello.hubId)}`,
    `isthmus-session: ${hello.sessionId}`,
    `isthmus-tenant: ${encodeURIComponent(hello.tenant)}`,
    `isthmus-server-count: ${hello.serverCount}`,
  ];
  if (hello.policy) lines.push('isthmus-policy: ?1');
  if (hello.renewal) lines.push('isthmus-renewal: ?1');
  if (hello.ping) lines.push(`${PING_FIELD}: ${hello.ping.seconds}`);
  if (hello.plane !== '') lines.push(`isthmus-plane: ${encodeURIComponent(hello.plane)}`);
  return `${lines.join('\r\n')}\r\n\r\n`;
}

function statusOf(error: Error): number {
  if (error instanceof LinkRefused || error instanceof RequestRefused) return error.status;
  if (error instanceof AgentLimitError) return 429;
  if (!(error instanceof NotAuthorised)) return 500;
  return error.undecided ? 503 : 403;
}

/** Answers with a status and what may be told of the error, and ends the connection: see `answerLast`. */
export function answerRefusal(socket: Socket, status: number, error: Error): void {
  const fields: Field[] = [
    ['isthmus-error', percentEncoded(toldOf(error))],
    ['content-length', '0'],
  ];
  if (status === 429 || status === 503) fields.push(['retry-after', String(TRANSPORT.retryAfterSeconds)]);
  answerLast(socket, status, fields);
}
