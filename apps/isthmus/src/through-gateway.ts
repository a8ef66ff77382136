import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { adviceFor } from '@isthmus/findings';
import { ISTHMUS } from './defaults.ts';
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
  if (isIP(host) !== 0) return { address: host, detail: `${host} is an address` };
  const { address } = await orAborted(lookup(host), signal);
  return { address, detail: `${host} is ${address}` };
}

/** Waits for what cannot be aborted. */
async function orAborted<T>(wanted: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  return await Promise.race([wanted, once(signal, 'abort').then(() => Promise.reject(signal.reason))]);
}

export async function opened(host: string, port: number, sockets: Socket[], signal: AbortSignal) {
  const socket = connectTcp({ host, port, allowHalfOpen: true });
  sockets.push(socket);
  await once(socket, 'connect', { signal });
  return { socket, detail: `${host} port ${port} accepts` };
}

/** What TLS stands on; a certificate of one's own is shown if the gateway asks. */
type Trusted = Pick<KubeContext, 'ca' | 'insecure' | 'serverName' | 'cert' | 'key'>;

/** TLS as client-go makes it: the cluster's CA data and tls-server-name and the user's certificate, for gateway and API server alike. */
export async function secured(below: Socket, host: string, context: Trusted, sockets: Socket[], signal: AbortSignal) {
  const { ca, insecure, serverName = host, cert, key } = context;
  const servername = isIP(serverName) === 0 ? serverName : '';
  const options = {
    socket: below,
    host: serverName,
    servername,
    rejectUnauthorized: !insecure,
    ALPNProtocols: ['http/1.1'],
  };
  const socket = connectTls({ ...options, ...(ca !== undefined && { ca }), ...(cert !== undefined && { cert, key }) });
  sockets.push(socket);
  const closed = once(socket, 'close', { signal }).then(() => Promise.reject(new Error('it ended the connection')));
  await Promise.race([once(socket, 'secureConnect', { signal }), closed]);
  const { subject, issuer, valid_to: until } = socket.getPeerCertificate();
  const name = subject?.CN ?? '(no name)';
  const by = ca === undefined ? "one of the system's CAs" : `${issuer?.CN ?? 'a CA'}, of the kubeconfig's CA data`;
  return {
    socket,
    detail: insecure ? `${name}, unchecked (insecure-skip-tls-verify)` : `${name} by ${by}, until ${until}`,
  };
}

export async function tunnelled(socket: Socket, proxy: URL, authority: string, signal: AbortSignal) {
  const user = decodeURIComponent(proxy.username);
  const token = decodeURIComponent(proxy.password);
  const basic = Buffer.from(`${user}:${token}`).toString('base64');
  const authorization = user === '' ? '' : `Proxy-Authorization: Basic ${basic}\r\n`;
  socket.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${authorization}\r\n`);
  const { status, fields } = await headOf(socket, signal);
  if (status >= 200 && status < 300) return { detail: `open to ${authority}, as tenant ${user || '(none)'}` };
  if (status === 407) throw refused(user, token, await reasonIn(socket, fields, signal));
  const { code, details } = proxyStatusOf(fields.get('proxy-status') ?? '');
  if (status === 0)
    throw new Stop(
      'what answers is no HTTP proxy',
      proxy.protocol === 'http:'
        ? 'a gateway speaks TLS there: write https:// in proxy-url'
        : 'is this the port for callers?',
    );
  const text = [`the gateway answers ${status}`, code, details].filter((each) => each !== '').join(': ');
  throw new Stop(text, code === '' ? "read the gateway's log" : adviceFor(code));
}

function refused(user: string, token: string, reason: string): Stop {
  if (user === '') return new Stop('407: no token was sent', 'isthmus login TENANT writes one into proxy-url');
  const expiry = expiryOf(token);
  if (expiry !== undefined && expiry < Date.now())
    return new Stop(
      `407: the token of ${user} expired at ${isoTime(expiry)}`,
      'log in again; with a command behind -- the next kubectl call renews it, and the one after uses it',
    );
  const why = reason === '' ? '' : `: ${reason}`;
  return new Stop(
    `407: the gateway does not take the token for tenant ${user}${why}`,
    "is the tenant's name right, and is the token's issuer, audience or hash in the tenant's file?",
  );
}

/** Returns the first line of a refusal's body, in which gateways say why. */
async function reasonIn(socket: Socket, fields: Head['fields'], signal: AbortSignal): Promise<string> {
  const wanted = Math.min(Number(fields.get('content-length')) || 0, ISTHMUS.reasonBytes);
  let text = '';
  while (text.length < wanted && !socket.readableEnded && !socket.destroyed) {
    const chunk = socket.read() as Buffer | null;
    if (chunk === null) await Promise.race([once(socket, 'readable', { signal }), once(socket, 'end', { signal })]);
    else text += chunk.toString('latin1');
  }
  return /^[ -~]*/.exec(text.slice(0, wanted).trim())?.[0] ?? '';
}

/** Reads the first member of Proxy-Status (RFC 9209). */
function proxyStatusOf(text: string): { readonly code: string; readonly details: string } {
  const code = /;\s*error=([\w-]+)/.exec(text)?.[1] ?? '';
  const details = /;\s*details="((?:[^"\\]|\\.)*)"/.exec(text)?.[1]?.replaceAll(/\\(.)/g, '$1') ?? '';
  return { code, details };
}

interface Head {
  /** 0 if it is no HTTP. */
  readonly status: number;
  readonly fields: ReadonlyMap<string, string>;
}

/** Reads the head of an answer and no byte behind it. */
export async function headOf(socket: Socket, signal: AbortSignal): Promise<Head> {
  let text = '';
  while (!text.includes('\r\n\r\n')) {
    const chunk = socket.read() as Buffer | null;
    if (chunk === null) {
      if (socket.readableEnded || socket.destroyed) break;
      await Promise.race([once(socket, 'readable', { signal }), once(socket, 'end', { signal })]);
      continue;
    }
    text += chunk.toString('latin1');
    if (text.length > ISTHMUS.headBytes || !'HTTP/1.'.startsWith(text.slice(0, 7))) break;
  }
  const [head = '', ...behind] = text.split('\r\n\r\n');
  const rest = behind.join('\r\n\r\n');
  if (rest !== '') socket.unshift(Buffer.from(rest, 'latin1'));
  const [first = '', ...lines] = head.split('\r\n');
  if (text === '') throw new Error('it ended the connection');
  const fields = lines.map(
    (line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 1).trim()] as const,
  );
  return { status: Number(/^HTTP\/1\.[01] (\d{3})/.exec(first)?.[1] ?? 0), fields: new Map(fields) };
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
