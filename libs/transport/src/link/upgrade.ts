import http, { type IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { guarding } from '@isthmus/runtime';
import { checkName } from '@isthmus/tunnel';
import { AgentLimitError } from '../agent-limit.ts';
import { type HttpHead, readHead } from '../head/head-reader.ts';
import { percentDecoded, percentEncoded, reasonOf } from '../head/percent.ts';

/**
 * How an agent's connection becomes a link. The agent sends an HTTP/1.1 Upgrade request that says who it is, and the hub answers 101.
 * From then on, the agent is the HTTP/2 server on the socket that it dialled, and the hub is the client.
 */

export const LINK_PATH = '/isthmus/link';
export const LINK_PROTOCOL = 'isthmus-link/1';

/** How long an agent may take to send its request, in milliseconds. */
const HANDSHAKE_TIMEOUT = 10_000;

export interface AgentHello {
  readonly agentId: string;
  /** URL query, as upstream's `--agent-identifiers`. */
  readonly identifiers: string;
  readonly tenant: string;
  readonly version: string;
  /** Service account token, without `Bearer`. */
  readonly token?: string;
}

export interface HubHello {
  readonly hubId: string;
  readonly sessionId: string;
  /** Names the plane that the hub shares with others. Empty if it stands alone. */
  readonly plane: string;
  /** How many servers an agent should look for. */
  readonly serverCount: number;
}

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
 * Agent's side: asks for a link on a connected socket. Rejects with LinkRefused if the answer is not 101 or names no hub.
 * @param timeout how long the hub may take to answer, in milliseconds
 */
export async function requestLink(socket: Socket, host: string, hello: AgentHello, timeout: number): Promise<HubHello> {
  const lines = [
    `GET ${LINK_PATH} HTTP/1.1`,
    `host: ${host}`,
    'connection: upgrade',
    `upgrade: ${LINK_PROTOCOL}`,
    `isthmus-agent: ${encodeURIComponent(hello.agentId)}`,
    `isthmus-identifiers: ${encodeURIComponent(hello.identifiers)}`,
    `isthmus-tenant: ${encodeURIComponent(hello.tenant)}`,
    `isthmus-version: ${encodeURIComponent(hello.version)}`,
  ];
  if (hello.token !== undefined) lines.push(`authorization: Bearer ${hello.token}`);
  // Wait for both at once: a broken connection fails both, and neither failure may go unhandled.
  const request = write(socket, `${lines.join('\r\n')}\r\n\r\n`);
  const [head] = await Promise.all([readHead(socket, timeout), request]);
  if (head.status !== 101) throw await refusal(socket, head);
  const hubId = named(head, 'isthmus-hub');
  if (hubId === '')
    throw new LinkRefused(101, "the answer names no hub: something else than a hub's agent port answered");
  return {
    hubId,
    sessionId: named(head, 'isthmus-session'),
    plane: named(head, 'isthmus-plane'),
    serverCount: Number(head.fields.get('isthmus-server-count') ?? 1),
  };
}

/** Throws LinkRefused for a malformed name. A peer that answered 101 knows the protocol. */
function named({ fields, status }: HttpHead, name: string): string {
  const value = fields.get(name) ?? '';
  return readName(value, `the answer's ${name}`, status);
}

async function refusal(socket: Socket, head: HttpHead): Promise<LinkRefused> {
  const text = head.fields.get('isthmus-error');
  socket.destroy();
  return new LinkRefused(head.status, text ? reasonOf(text) : `answered with status ${head.status}`);
}

export interface UpgradeServerOptions {
  /** Decides on a hello. Rejects with LinkRefused, whose status is answered, or any error (500). */
  readonly admit: (hello: AgentHello, socket: Socket) => Promise<HubHello>;
  /** Called when the socket is ready for a link. May throw to end it after all. */
  readonly open: (socket: Socket, hello: AgentHello, answer: HubHello) => void;
  readonly refused: (socket: Socket, error: Error) => void;
  /** Called for a defect of ours that has ended the connection. */
  readonly fault: (socket: Socket, error: Error) => void;
}

/** Hub's side: accepts sockets on which an agent asks for a link. */
export function upgradeServer(options: UpgradeServerOptions): { accept(socket: Socket): void } {
  const server = http.createServer({ keepAlive: false });
  const waiting = new Map<Duplex, NodeJS.Timeout>();
  const settle = (socket: Duplex) => {
    clearTimeout(waiting.get(socket));
    waiting.delete(socket);
  };
  const refuse = (socket: Socket, error: Error, answered = false) => {
    settle(socket);
    options.refused(socket, error);
    if (answered) {
      socket.destroy();
      return;
    }
    const status = error instanceof LinkRefused ? error.status : error instanceof AgentLimitError ? 429 : 500;
    answerRefusal(socket, status, error.message);
  };
  const guarded = (socket: Socket, act: () => unknown) => {
    const failed = (error: Error) => {
      settle(socket);
      socket.destroy();
      options.fault(socket, error);
    };
    guarding(failed)(act)();
  };
  const elsewhere = ({ method, socket }: IncomingMessage) => {
    const error = new LinkRefused(404, `this port is for agents: ${LINK_PROTOCOL} or gRPC, not ${method}`);
    guarded(socket, () => refuse(socket, error));
  };
  server.on('request', elsewhere);
  // Without a listener of its own, node:http drops a CONNECT without an answer.
  server.on('connect', elsewhere);
  server.on('clientError', (error, stream) => {
    const socket = stream as Socket;
    guarded(socket, () => refuse(socket, new LinkRefused(400, error.message)));
  });
  const upgrade = async (request: IncomingMessage, socket: Socket, head: Buffer) => {
    settle(socket);
    socket.on('error', () => {});
    let answered = false;
    try {
      const hello = readHello(request);
      const answer = await options.admit(hello, socket);
      answered = true;
      await write(socket, acceptance(answer));
      if (head.length > 0) socket.unshift(head);
      options.open(socket, hello, answer);
    } catch (error) {
      refuse(socket, error as Error, answered);
    }
  };
  server.on('upgrade', (request: IncomingMessage, stream: Duplex, head: Buffer) => {
    const socket = stream as Socket;
    guarded(socket, () => upgrade(request, socket, head));
  });
  return {
    accept(socket) {
      const late = () => guarded(socket, () => refuse(socket, new LinkRefused(408, 'no request in time')));
      const timer = setTimeout(late, HANDSHAKE_TIMEOUT);
      waiting.set(socket, timer);
      socket.once('close', () => settle(socket));
      server.emit('connection', socket);
      socket.resume();
    },
  };
}

function readHello(request: IncomingMessage): AgentHello {
  if (request.headers.upgrade !== LINK_PROTOCOL || request.url !== LINK_PATH) {
    throw new LinkRefused(404, `this port serves ${LINK_PROTOCOL} at ${LINK_PATH}, not ${request.headers.upgrade}`);
  }
  const agents = request.headersDistinct['isthmus-agent'] ?? [];
  if (agents.length !== 1 || agents[0] === '') throw new LinkRefused(400, 'want exactly one agent id');
  const field = (name: string) => request.headersDistinct[name]?.[0] ?? '';
  const named = (name: string) => readName(field(name), name, 400);
  const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? '')?.[1];
  return {
    agentId: named('isthmus-agent'),
    identifiers: decode(field('isthmus-identifiers'), 'isthmus-identifiers', 400),
    tenant: named('isthmus-tenant') || 'default',
    version: named('isthmus-version'),
    ...(token !== undefined && { token }),
  };
}

/** Throws LinkRefused with this status. */
function readName(value: string, name: string, status: number): string {
  try {
    return checkName(name, decode(value, name, status));
  } catch (error) {
    throw error instanceof LinkRefused ? error : new LinkRefused(status, (error as Error).message);
  }
}

function decode(value: string, name: string, status: number): string {
  const text = percentDecoded(value);
  if (text !== undefined) return text;
  throw new LinkRefused(status, `${name} is not percent-encoded: ${JSON.stringify(value.slice(0, 60))}`);
}

function acceptance(hello: HubHello): string {
  const lines = [
    'HTTP/1.1 101 Switching Protocols',
    'connection: upgrade',
    `upgrade: ${LINK_PROTOCOL}`,
    `isthmus-hub: ${encodeURIComponent(hello.hubId)}`,
    `isthmus-session: ${hello.sessionId}`,
    `isthmus-server-count: ${hello.serverCount}`,
  ];
  if (hello.plane !== '') lines.push(`isthmus-plane: ${encodeURIComponent(hello.plane)}`);
  return `${lines.join('\r\n')}\r\n\r\n`;
}

function answerRefusal(socket: Socket, status: number, text: string): void {
  if (socket.destroyed || !socket.writable) return;
  const head = [
    `HTTP/1.1 ${status} ${http.STATUS_CODES[status] ?? 'Error'}`,
    'connection: close',
    `isthmus-error: ${percentEncoded(text)}`,
    'content-length: 0',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n`, () => socket.destroy());
}

function write(socket: Socket, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.write(text, (error) => (error ? reject(error) : resolve()));
  });
}
