import { once } from 'node:events';
import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { asked, DialError, refusalOf } from '@isthmus/client/gateways';
import { adviceFor } from '@isthmus/findings';
import { connectFirst, resolveName, sniOf } from '@isthmus/runtime';
import type { KubeContext } from './kubeconfig.ts';
import { isoTime } from './output.ts';

/*
 * The way of a call through a gateway, as client-go goes it: `isthmus why` shows each step, and `isthmus nc` uses the tunnel. Each step
 * returns what it found in words.
 */

/** A step that failed, and what to do. */
export class Stop extends Error {
  override readonly name = 'Stop';
  readonly todo: string;

  constructor(message: string, todo: string) {
    super(message);
    this.todo = todo;
  }
}

export function bare(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, '');
}

export async function resolved(host: string, signal: AbortSignal) {
  if (isIP(host) !== 0) return { addresses: [host], detail: `${host} is an address` };
  const addresses = (await resolveName(host, signal)).map(({ address }) => address);
  return { addresses, detail: `${host} is ${addresses.join(' and ')}` };
}

/** Connects to the first of several addresses that accepts. */
export async function opened(addresses: readonly string[], port: number, sockets: Socket[], signal: AbortSignal) {
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  const giveUp = connectFirst(addresses, {
    open: (host) => connectTcp({ host, port, allowHalfOpen: true }),
    connected: resolve,
    failed: (error) => reject(error instanceof AggregateError ? error.errors[0] : error),
  });
  const abort = () => {
    giveUp();
    reject(signal.reason);
  };
  signal.addEventListener('abort', abort);
  if (signal.aborted) abort();
  const socket = await promise.finally(() => signal.removeEventListener('abort', abort));
  sockets.push(socket);
  return { socket, detail: `${socket.remoteAddress} port ${port} accepts` };
}

/** What TLS stands on; a certificate of one's own is shown if the gateway asks. */
type Trusted = Pick<KubeContext, 'ca' | 'insecure' | 'serverName' | 'cert' | 'key'>;

/** TLS as client-go makes it: the cluster's CA data and tls-server-name and the user's certificate, for gateway and API server alike. */
export async function secured(below: Socket, host: string, context: Trusted, sockets: Socket[], signal: AbortSignal) {
  const { ca, insecure, serverName = host, cert, key } = context;
  const options = {
    socket: below,
    host: serverName,
    ...sniOf(serverName),
    rejectUnauthorized: !insecure,
    ALPNProtocols: ['http/1.1'],
  };
  const socket = connectTls({ ...options, ...(ca !== undefined && { ca }), ...(cert !== undefined && { cert, key }) });
  sockets.push(socket);
  await handshake(socket, signal);
  const { subject, issuer, valid_to: until } = socket.getPeerCertificate();
  const name = subject?.CN ?? '(no name)';
  const by = ca === undefined ? "one of the system's CAs" : `${issuer?.CN ?? 'a CA'}, of the kubeconfig's CA data`;
  return {
    socket,
    detail: insecure ? `${name}, unchecked (insecure-skip-tls-verify)` : `${name} by ${by}, until ${until}`,
  };
}

/** Waits for the handshake. Rejects if there is none. */
export async function handshake(socket: TLSSocket, signal?: AbortSignal): Promise<void> {
  const options = signal && { signal };
  const closed = once(socket, 'close', options).then(() => Promise.reject(new Error('it closed the connection')));
  await Promise.race([once(socket, 'secureConnect', options), closed]);
}

export async function tunnelled(socket: Socket, proxy: URL, authority: string, signal: AbortSignal) {
  const user = decodeURIComponent(proxy.username);
  const token = decodeURIComponent(proxy.password);
  const basic = Buffer.from(`${user}:${token}`).toString('base64');
  const authorization = user === '' ? '' : `Proxy-Authorization: Basic ${basic}\r\n`;
  const head = `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${authorization}\r\n`;
  const answer = await asked(socket, head, signal).catch((error) => {
    if (!(error instanceof DialError)) throw error;
    throw new Stop(
      'what answers is no HTTP proxy',
      proxy.protocol === 'http:'
        ? 'a gateway speaks TLS there: write https:// in proxy-url'
        : 'is this the port for callers?',
    );
  });
  const { status } = answer;
  if (status >= 200 && status < 300) return { detail: `open to ${authority}, as tenant ${user || '(none)'}` };
  const refusal = refusalOf(answer, 'the gateway');
  if (status === 407) throw refused(user, token, refusal);
  const said = isOfPlane(refusal);
  throw new Stop(
    said ? `the gateway answers ${status}: ${refusal.code}: ${refusal.message}` : refusal.message,
    adviceFor(refusal.code),
  );
}

/** Whether a refusal says why, as gateways do. */
function isOfPlane({ code }: DialError): boolean {
  return code !== 'http_protocol_error';
}

function refused(user: string, token: string, refusal: DialError): Stop {
  if (user === '') return new Stop('407: no token was sent', 'isthmus login TENANT writes one into proxy-url');
  const expiry = expiryOf(token);
  if (expiry !== undefined && expiry < Date.now())
    return new Stop(
      `407: the token of ${user} expired at ${isoTime(expiry)}`,
      'log in again; with a command behind -- the next kubectl call renews it, and the one after uses it',
    );
  return new Stop(
    `407: the gateway does not take the token for tenant ${user}${isOfPlane(refusal) ? `: ${refusal.message}` : ''}`,
    "is the tenant's name right, and is the token's issuer, audience or hash in the tenant's file?",
  );
}

/** Returns when a JWT expires, in milliseconds since the epoch; undefined for other tokens. */
export function expiryOf(token: string): number | undefined {
  try {
    const { exp } = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()) as { exp?: unknown };
    return typeof exp === 'number' && exp > 0 && exp < 1e11 ? exp * 1000 : undefined;
  } catch {
    return undefined;
  }
}
