import type { Agent as HttpAgent, AgentOptions as HttpAgentOptions } from 'node:http';
import type { Agent as HttpsAgent, AgentOptions as HttpsAgentOptions } from 'node:https';
import { isIPv6, type Socket } from 'node:net';
import type { ConnectionOptions } from 'node:tls';
import { type Connector, connectorOf, type Dispatcher, dispatcherOf, httpAgentOf, httpsAgentOf } from './agents.ts';
import { CLIENT } from './defaults.ts';
import { asked, type Credentials, connected, DialError, type GatewayPlace, gatewayOf, refusalOf } from './gateways.ts';

export interface DialerOptions {
  /** `https://host:port` or `unix:/path`. Of several, the one that answered last is tried first, then the others in this order. */
  readonly gateway: string | readonly string[];
  /** PEM: who may have issued the gateways' certificates. Default: Node's list. */
  readonly ca?: string | Buffer | (string | Buffer)[];
  /** Asked at each dial if it is a function, so that they can be renewed. Not used on a unix socket, whose permissions decide. */
  readonly credentials?: Credentials | (() => Credentials | Promise<Credentials>);
  /** Asked at each dial: W3C trace context to continue. */
  readonly traceparent?: () => string | undefined;
}

export interface DialOptions {
  /** Gives up the dial. Has no effect on an established tunnel. */
  readonly signal?: AbortSignal;
  /** How long it may take, whatever gateways it tries. Milliseconds; default 30 s. */
  readonly timeoutMs?: number;
  /** W3C trace context to continue. Default: what the dialer's `traceparent` says. */
  readonly traceparent?: string | undefined;
}

/** Opens tunnels through the gateways of a plane. */
export interface Dialer {
  /**
   * Opens a tunnel to what an agent reaches as `host:port`. A socket: `end()` is the half-close, and a cut is an error.
   * Rejects with a DialError, or with the signal's reason. Tries other gateways until one has answered.
   */
  dial(host: string, port: number, options?: DialOptions): Promise<Socket>;
  /** An agent for node:http. Its connections are tunnels, which it keeps for further requests. */
  httpAgent(options?: HttpAgentOptions): HttpAgent;
  /** The same for node:https. Options are for TLS to the destination: `ca`, `cert`, `servername`. */
  httpsAgent(options?: HttpsAgentOptions): HttpsAgent;
  /** undici's `connect`: `new Agent({ connect: dialer.connector() })`. Options are for TLS to the destination. */
  connector(tls?: ConnectionOptions): Connector;
  /** A dispatcher for the `fetch` of Node. Throws where the runtime has no undici, as on Deno. */
  dispatcher(tls?: ConnectionOptions): Dispatcher;
}

/** Dials nothing yet. @throws TypeError for a gateway that is no address */
export function createDialer(options: DialerOptions): Dialer {
  const gateways = [options.gateway].flat().map(gatewayOf);
  if (gateways.length === 0) throw new TypeError('a dialer needs a gateway');
  /** The index of the one that answered last. */
  let first = 0;
  const dial: Dialer['dial'] = async (host, port, { signal, timeoutMs = CLIENT.dialMs, traceparent } = {}) => {
    const to = authorityOf(host, port);
    signal?.throwIfAborted();
    const late = () => new DialError('connection_timeout', `dial ${to}: no answer in ${timeoutMs} ms`);
    const ending = endingOf(signal, timeoutMs, late);
    const failures: Error[] = [];
    try {
      const given = await credentialsOf(options, ending.signal);
      ending.signal.throwIfAborted();
      const proof = given && 'token' in given ? authorization(given) : undefined;
      const lines = [`CONNECT ${to} HTTP/1.1`, `host: ${to}`, ...traceOf(traceparent ?? options.traceparent?.())];
      const start = first;
      for (let turn = 0; turn < gateways.length; turn++) {
        const index = (start + turn) % gateways.length;
        const gateway = gateways[index] as GatewayPlace;
        try {
          const socket = await through(gateway, {
            ...options,
            lines,
            proof,
            credentials: given,
            signal: ending.signal,
          });
          first = index;
          return socket;
        } catch (error) {
          ending.signal.throwIfAborted();
          if (error instanceof DialError && error.status !== undefined && error.retryAfter !== 0) throw error;
          failures.push(new Error(`${gateway.name}: ${(error as Error).message}`, { cause: error }));
        }
      }
      throw unreachable(to, failures);
    } finally {
      ending[Symbol.dispose]();
    }
  };
  return {
    dial,
    httpAgent: (agent) => httpAgentOf(dial, agent),
    httpsAgent: (agent) => httpsAgentOf(dial, agent),
    connector: (tls) => connectorOf(dial, tls),
    dispatcher: (tls) => dispatcherOf(dial, tls),
  };
}

/** Returns nothing once the signal aborts: what is asked may never answer. */
async function credentialsOf(
  { credentials }: Pick<DialerOptions, 'credentials'>,
  signal: AbortSignal,
): Promise<Credentials | undefined> {
  if (typeof credentials !== 'function') return credentials;
  const ended = new Promise<undefined>((resolve) => {
    signal.addEventListener('abort', () => resolve(undefined), { once: true });
  });
  return Promise.race([credentials(), ended]);
}

interface Through extends Pick<DialerOptions, 'ca'> {
  readonly lines: readonly string[];
  /** The header field of a token. */
  readonly proof: string | undefined;
  readonly credentials: Credentials | undefined;
  readonly signal: AbortSignal;
}

/** Asks one gateway. Rejects with a DialError that has a status if it refuses. */
async function through(gateway: GatewayPlace, { lines, proof, ca, credentials, signal }: Through): Promise<Socket> {
  const remote = 'host' in gateway;
  const certificate = credentials && 'cert' in credentials ? { cert: credentials.cert, key: credentials.key } : {};
  const socket = await connected(gateway, { ...(ca !== undefined && { ca }), ...certificate }, signal);
  const head = [...lines, ...(remote && proof !== undefined ? [proof] : []), '', ''].join('\r\n');
  const answer = await asked(socket, head, signal);
  if (answer.status === 200) return socket;
  socket.on('error', () => {}).destroy();
  throw refusalOf(answer, gateway.name);
}

/** Where every gateway says that another takes the dial at once, that is what the last one said. */
function unreachable(to: string, failures: readonly Error[]): DialError {
  const last = failures.at(-1)?.cause;
  if (last instanceof DialError && last.status !== undefined) return last;
  const text = `dial ${to}: ${failures.map(({ message }) => message).join('; ')}`;
  const cause = failures.length === 1 ? failures[0]?.cause : new AggregateError(failures, text);
  return new DialError('gateway_unreachable', text, { retryable: true, cause });
}

/** A signal that aborts with the caller's, or when it is late. */
function endingOf(
  signal: AbortSignal | undefined,
  ms: number,
  late: () => Error,
): Disposable & { signal: AbortSignal } {
  const ending = new AbortController();
  const abort = () => ending.abort(signal?.reason);
  const timer = setTimeout(() => ending.abort(late()), ms);
  signal?.addEventListener('abort', abort, { once: true });
  return {
    signal: ending.signal,
    [Symbol.dispose]() {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
    },
  };
}

function authorization({ token, tenant }: { readonly token: string; readonly tenant?: string }): string {
  // The text does not have the token in it.
  if (/[^\x21-\x7e]/.test(token) || /[:\r\n]/.test(tenant ?? ''))
    throw new DialError('http_request_error', 'a token is of printable ASCII, and no tenant has a colon in its name');
  if (tenant === undefined) return `proxy-authorization: Bearer ${token}`;
  return `proxy-authorization: Basic ${Buffer.from(`${tenant}:${token}`).toString('base64')}`;
}

function traceOf(traceparent: string | undefined): string[] {
  return traceparent !== undefined && /^[\da-f-]+$/.test(traceparent) ? [`traceparent: ${traceparent}`] : [];
}

/** @throws DialError for what would be no `host:port` */
function authorityOf(host: string, port: number): string {
  const plain = host.replace(/^\[(.*)\]$/, '$1');
  const named = /^[\w.*~!$&'()+,;=%-]{1,253}$/.test(plain);
  if ((!named && !isIPv6(plain)) || !Number.isInteger(port) || port < 1 || port > 65535)
    throw new DialError('http_request_error', `no destination: ${JSON.stringify(`${plain}:${port}`.slice(0, 300))}`);
  return named ? `${plain}:${port}` : `[${plain}]:${port}`;
}
