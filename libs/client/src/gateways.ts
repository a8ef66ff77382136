import { connect, isIP, type Socket } from 'node:net';
import { connect as connectTls, type SecureContextOptions } from 'node:tls';
import { CLIENT } from './defaults.ts';

/** Names of RFC 9209 section 2.3, as the plane's `Proxy-Status` says them, and one for a plane that could not be asked. */
export type DialErrorCode =
  | 'connection_refused'
  | 'connection_timeout'
  | 'destination_ip_unroutable'
  | 'dns_error'
  | 'dns_timeout'
  | 'destination_ip_prohibited'
  | 'http_request_denied'
  | 'http_request_error'
  | 'destination_unavailable'
  | 'connection_limit_reached'
  | 'connection_terminated'
  | 'proxy_internal_error'
  /** An answer that is none of the plane's: no HTTP, or no `Proxy-Status`. */
  | 'http_protocol_error'
  /** No gateway answered. `cause` has each one's error. */
  | 'gateway_unreachable'
  // A later plane may have others.
  | (string & {});

interface DialErrorOptions extends ErrorOptions {
  readonly status?: number;
  readonly retryable?: boolean;
  readonly retryAfter?: number | undefined;
  readonly traceId?: string | undefined;
}

/** A dial that failed. No byte of the caller has reached its destination. */
export class DialError extends Error {
  override readonly name = 'DialError';
  readonly code: DialErrorCode;
  /** The HTTP status of the answer; undefined if no gateway answered. */
  readonly status: number | undefined;
  /** Whether the same dial may succeed later, or elsewhere: its failure says nothing about the destination. */
  readonly retryable: boolean;
  /** Seconds to wait before that, as the gateway says. */
  readonly retryAfter: number | undefined;
  /** W3C trace id under which the plane's logs and traces have the dial. */
  readonly traceId: string | undefined;

  constructor(code: DialErrorCode, message: string, options: DialErrorOptions = {}) {
    super(message, options);
    this.code = code;
    this.status = options.status;
    this.retryable = options.retryable ?? false;
    this.retryAfter = options.retryAfter;
    this.traceId = options.traceId;
  }
}

/** How a caller proves itself: by a client certificate, by a token, or by a tenant's name and its token. */
export type Credentials =
  | { readonly cert: string | Buffer; readonly key: string | Buffer }
  | { readonly token: string; readonly tenant?: string };

/** Where a gateway accepts callers. */
export type GatewayPlace =
  | { readonly name: string; readonly path: string }
  | { readonly name: string; readonly host: string; readonly port: number };

/** @throws TypeError for a URL that is neither `https://host:port` nor `unix:/path` */
export function gatewayOf(text: string): GatewayPlace {
  if (/^unix:\/./.test(text)) return { name: text, path: text.slice('unix:'.length).replace(/^\/\/(?=\/)/, '') };
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const more = url && (url.pathname !== '/' || url.search || url.hash || url.username || url.password);
  // The text is not shown: a proxy's URL may have a password in it.
  if (url?.protocol !== 'https:' || more) throw new TypeError('a gateway is https://host:port or unix:/path');
  return { name: text, host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port) || 443 };
}

/** Connects to a gateway, with its handshake. Rejects with what the socket says; destroys the socket once the signal aborts. */
export function connected(gateway: GatewayPlace, tls: SecureContextOptions, signal: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const local = 'path' in gateway;
    const socket = local ? connect({ path: gateway.path, allowHalfOpen: true }) : secure(gateway, tls);
    const settle = (error?: Error) => {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
      socket.off('error', settle).off('close', closed);
      if (!error) return resolve(socket);
      socket.on('error', () => {}).destroy();
      reject(error);
    };
    const closed = () => settle(new Error('it closed the connection in the handshake'));
    const abort = () => settle(new Error('given up'));
    const timer = setTimeout(() => settle(new Error(`no connection in ${CLIENT.connectMs} ms`)), CLIENT.connectMs);
    signal.addEventListener('abort', abort, { once: true });
    socket.once(local ? 'connect' : 'secureConnect', () => settle());
    socket.on('error', settle).on('close', closed);
  });
}

/** The server name (SNI) for a host: an address has none, and a name's last dot, which Go's servers refuse, is not part of it. */
export function sniOf(host: string): { readonly servername?: string } {
  return host === '' || isIP(host) !== 0 ? {} : { servername: host.replace(/(?<!\.)\.+$/, '') };
}

function secure({ host, port }: { readonly host: string; readonly port: number }, tls: SecureContextOptions): Socket {
  const options = { host, port, ...sniOf(host), ...tls, allowHalfOpen: true };
  return connectTls(options).setNoDelay(true).setKeepAlive(true, CLIENT.keepAliveMs);
}

/** What a gateway answered to CONNECT. */
export interface Answer {
  readonly status: number;
  /** The text after the status. May be empty. */
  readonly reason: string;
  /** By names in lower case; of a repeated field, the last. */
  readonly fields: ReadonlyMap<string, string>;
}

/** Returns undefined for what is no head of HTTP/1.1. */
function readAnswer(head: string): Answer | undefined {
  const [statusLine = '', ...lines] = head.split('\r\n');
  const [, status, reason = ''] = /^HTTP\/1\.[01] (\d{3})(?: (.*))?$/.exec(statusLine) ?? [];
  if (status === undefined) return undefined;
  const fields = new Map<string, string>();
  for (const line of lines) {
    const colon = line.indexOf(':');
    if (colon > 0) fields.set(line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim());
  }
  return { status: Number(status), reason, fields };
}

/**
 * Sends CONNECT, or another request, and reads the head of the answer. Bytes behind it stay on the socket.
 * Rejects with a DialError for what is no HTTP, else with what the socket says, and destroys the socket.
 */
export function asked(socket: Socket, head: string, signal: AbortSignal): Promise<Answer> {
  return new Promise((resolve, reject) => {
    let seen: Buffer | undefined;
    const settle = (error: Error | undefined, answer?: Answer) => {
      signal.removeEventListener('abort', abort);
      socket.off('readable', read).off('error', settle).off('end', closed).off('close', closed);
      if (answer) return resolve(answer);
      socket.on('error', () => {}).destroy();
      reject(error);
    };
    const closed = () => settle(new Error('it closed the connection before an answer'));
    const abort = () => settle(new Error('given up'));
    const read = () => {
      for (let chunk: Buffer | null = socket.read(); chunk !== null; chunk = socket.read()) {
        const searched = Math.max(0, (seen?.length ?? 0) - 3);
        seen = seen ? Buffer.concat([seen, chunk]) : chunk;
        const end = seen.indexOf('\r\n\r\n', searched);
        if (end >= 0) {
          if (seen.length > end + 4) socket.unshift(seen.subarray(end + 4));
          // What it says is shown to people, so it must not control their terminal.
          const answer = readAnswer(seen.toString('latin1', 0, end).replace(/[^\x20-\x7e\r\n]/g, '?'));
          return answer ? settle(undefined, answer) : settle(noHttp());
        }
        if (!'HTTP/1.'.startsWith(seen.toString('latin1', 0, 'HTTP/1.'.length))) return settle(noHttp());
        if (seen.length > CLIENT.headBytes)
          return settle(new Error(`an answer's head of over ${CLIENT.headBytes} bytes`));
      }
    };
    signal.addEventListener('abort', abort, { once: true });
    socket.on('readable', read).on('error', settle).on('end', closed).on('close', closed);
    if (signal.aborted) return abort();
    socket.write(head);
  });
}

function noHttp(): DialError {
  return new DialError('http_protocol_error', 'its answer is not HTTP/1.1');
}

/** The parameters of `Proxy-Status` (RFC 9209) that say why. */
const PARAMETERS = /;\s*(error|details|trace-id)=(?:"((?:[^"\\]|\\.)*)"|([\w-]+))/g;

/** The failure that an answer tells of. @param gateway for texts */
export function refusalOf({ status, reason, fields }: Answer, gateway: string): DialError {
  const said = new Map<string, string>();
  for (const [, name = '', quoted, token] of (fields.get('proxy-status') ?? '').matchAll(PARAMETERS))
    said.set(name, quoted?.replace(/\\(.)/g, '$1') ?? token ?? '');
  const [code, details = reason] = [said.get('error'), said.get('details')];
  if (code === undefined && status === 403)
    return new DialError(
      'http_request_denied',
      `${gateway} takes no caller without its credential: ${status} ${reason}`,
      { status },
    );
  if (code === undefined) {
    const text = `${gateway} answered ${status} ${reason} without Proxy-Status: is it a gateway, and does another proxy stand before it?`;
    return new DialError('http_protocol_error', text, { status });
  }
  const seconds = fields.get('retry-after');
  return new DialError(code, details, {
    status,
    retryable: fields.get('isthmus-retryable') === '?1' || seconds !== undefined,
    retryAfter: seconds !== undefined && /^\d+$/.test(seconds) ? Number(seconds) : undefined,
    traceId: said.get('trace-id'),
  });
}
