import { type AgentOptions, Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent, type AgentOptions as HttpsAgentOptions } from 'node:https';
import type { Socket } from 'node:net';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { sniOf } from './gateways.ts';

type Dial = (host: string, port: number) => Promise<Socket>;
type Done = (error: Error | null, socket: Socket) => void;

/** What undici asks of its connector. */
interface ConnectorOptions {
  readonly hostname: string;
  readonly protocol: string;
  readonly port: string;
  readonly servername?: string | undefined;
}

/** undici's `buildConnector.connector`. */
export type Connector = (
  options: ConnectorOptions,
  callback: (...result: [Error, null] | [null, Socket]) => void,
) => void;

/** What Node's `fetch` takes as `dispatcher`. Where a program has the types of browsers, those of `fetch` do not know it. */
export type Dispatcher = RequestInit extends { dispatcher?: infer D } ? NonNullable<D> : object;

/** undici's `Agent`. */
type AgentClass = new (options: { connect: Connector }) => Dispatcher;

/** What Node's agents know of the request that needs a connection. */
interface Wanted {
  readonly host?: string | undefined;
  readonly port?: number | string | undefined;
}

/** A connection that is kept for further requests must not stay half open when the destination ends it. */
async function opened(dial: Dial, host: string, port: number): Promise<Socket> {
  const socket = await dial(host, port);
  socket.allowHalfOpen = false;
  return socket;
}

export function httpAgentOf(dial: Dial, options: AgentOptions = {}): HttpAgent {
  const agent = new HttpAgent({ keepAlive: true, ...options });
  agent.createConnection = ({ host, port }: Wanted, done?: Done) => {
    tell(opened(dial, host ?? 'localhost', Number(port ?? 80)), done);
    return undefined;
  };
  return agent;
}

export function httpsAgentOf(dial: Dial, options: HttpsAgentOptions = {}): HttpsAgent {
  const agent = new HttpsAgent({ keepAlive: true, ...options });
  agent.createConnection = ({ host, port, ...tls }: Wanted & ConnectionOptions, done?: Done) => {
    const name = host ?? 'localhost';
    tell(
      opened(dial, name, Number(port ?? 443)).then((socket) => secured(socket, name, tls)),
      done,
    );
    return undefined;
  };
  return agent;
}

/** Gives an agent of Node its connection. Its types want a socket beside an error, too. */
function tell(socket: Promise<Socket>, done: Done | undefined): void {
  socket.then((open) => done?.(null, open), done as ((error: Error) => void) | undefined);
}

export function connectorOf(dial: Dial, tls: ConnectionOptions = {}): Connector {
  return ({ hostname, protocol, port, servername }, callback) => {
    const secure = protocol === 'https:';
    const named = servername ? { servername } : {};
    opened(dial, hostname, Number(port) || (secure ? 443 : 80)).then(
      (socket) => callback(null, secure ? secured(socket, hostname, { ...named, ...tls }) : socket),
      (error) => callback(error, null),
    );
  };
}

/** Symbols under which undici keeps its global dispatcher: of its version 8, which changed what a dispatcher is given, and of those before it. */
const GLOBAL_DISPATCHERS = ['undici.globalDispatcher.2', 'undici.globalDispatcher.1'];

/**
 * Node has undici's Agent inside, and exports it only as what its `fetch` uses where nothing else is set. Node 26 has undici 8 inside. The
 * package undici 8 puts its own Agent there, on Node 22 in a wrapper that its old `fetch` understands. The wrapper takes new requests as well.
 */
export function dispatcherOf(dial: Dial, tls?: ConnectionOptions): Dispatcher {
  // Node loads undici with the first of its classes.
  void globalThis.Request;
  const found = GLOBAL_DISPATCHERS.map((name) => Reflect.get(globalThis, Symbol.for(name))?.constructor);
  const [newer, older] = found.map((each) => (each?.name === 'Agent' ? (each as AgentClass) : undefined));
  const Agent = older && Number.parseInt(process.versions.undici ?? '', 10) < 8 ? older : (newer ?? older);
  if (!Agent)
    throw new Error(
      'this runtime has no undici inside, or another global dispatcher: use the package undici, with connector()',
    );
  const agent = new Agent({ connect: connectorOf(dial, tls) });
  const Wrapper: (new (agent: Dispatcher) => Dispatcher) | undefined = found[1];
  return Wrapper?.name === 'Dispatcher1Wrapper' ? new Wrapper(agent) : agent;
}

/** TLS to the destination, through a tunnel. */
function secured(socket: Socket, host: string, tls: ConnectionOptions): Socket {
  const name = host.replace(/^\[(.*)\]$/, '$1');
  // Node and undici take the name of a URL as it is.
  const named = sniOf(tls.servername ?? name);
  return connectTls({ ALPNProtocols: ['http/1.1'], ...tls, ...named, host: name, socket });
}
