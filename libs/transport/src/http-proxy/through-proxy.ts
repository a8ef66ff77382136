import { isIP, type Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { clientTls, connectTls, connectTo, keptAlive, secured } from '@isthmus/runtime';
import { type Destination, formatDestination, printable } from '@isthmus/tunnel';
import { type HttpHead, readHead } from '../head/head-reader.ts';
import { write } from '../head/write.ts';
import type { HttpProxy } from './http-proxy.ts';

/** The longest part of a proxy's answer that is shown, in characters. */
const MAX_SHOWN = 100;

export interface ThroughProxyOptions {
  /** How long the proxy may take until the connection is there, in milliseconds. */
  readonly timeout: number;
  /** Gives up the attempt. Has no effect on an established connection. */
  readonly signal?: AbortSignal;
}

/**
 * Connects to a destination through a proxy. The proxy resolves the destination's name. Rejects with an error that names the proxy, what it
 * answered and what to do.
 */
export async function throughProxy(
  proxy: HttpProxy,
  to: Destination,
  { timeout, signal }: ThroughProxyOptions,
): Promise<Socket> {
  const late = performance.now() + timeout;
  const raw = await connectTo(proxy, { timeout, signal }).catch((error) => {
    throw failed(proxy, error);
  });
  return askProxy(raw, proxy, to, { timeout: Math.max(1, late - performance.now()), ...(signal && { signal }) });
}

function failed({ name }: HttpProxy, error: Error): Error {
  return new Error(`through the proxy ${name}: ${error.message}`, { cause: error });
}

/** As `throughProxy`, on a socket that is connected to the proxy. Destroys it if the attempt fails. */
export async function askProxy(
  raw: Socket,
  proxy: HttpProxy,
  to: Destination,
  { timeout, signal }: ThroughProxyOptions,
): Promise<Socket> {
  const { host, secure } = proxy;
  const destination = formatDestination(to);
  const ignore = () => {};
  raw.on('error', ignore);
  keptAlive(raw).setNoDelay(true);
  const socket = secure
    ? connectTls({ socket: raw, host, ...(isIP(host) === 0 && { servername: host }) }, clientTls({}), [host])
    : raw;
  // Also between two steps, when nothing else listens: an error without a listener would end the process.
  if (socket !== raw) socket.on('error', ignore);
  const end = (error: Error) => {
    socket.destroy(error);
    raw.destroy(error);
  };
  const timer = setTimeout(() => end(new Error(`no answer within ${Math.ceil(timeout / 100) / 10} s`)), timeout);
  const abandon = () => end(new Error('connection attempt abandoned'));
  if (signal?.aborted) abandon();
  signal?.addEventListener('abort', abandon, { once: true });
  try {
    if (socket instanceof TLSSocket) await secured(socket);
    // Both at once: a broken connection fails both, and neither failure may go unhandled.
    const [head] = await Promise.all([readHead(socket, timeout), write(socket, request(proxy, destination))]);
    if (head.status < 200 || head.status > 299) throw new Error(refusal(head, proxy, destination));
    return socket;
  } catch (error) {
    socket.destroy();
    raw.destroy();
    throw failed(proxy, error as Error);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abandon);
  }
}

function request({ credentials }: HttpProxy, destination: string): string {
  const lines = [`CONNECT ${destination} HTTP/1.1`, `host: ${destination}`, 'user-agent: isthmus'];
  if (credentials !== undefined)
    lines.push(`proxy-authorization: Basic ${Buffer.from(credentials).toString('base64')}`);
  return `${lines.join('\r\n')}\r\n\r\n`;
}

function refusal({ status, reason, fields }: HttpHead, { credentials }: HttpProxy, destination: string): string {
  const answered = `it answered ${printable(`${status} ${reason}`.trim().slice(0, MAX_SHOWN))} to CONNECT ${destination}`;
  if (status === 407) {
    const scheme = /^[\w-]+/.exec(fields.get('proxy-authenticate') ?? '')?.[0].slice(0, MAX_SHOWN) ?? 'credentials';
    return credentials === undefined
      ? `${answered}, asking for ${scheme}: put a user and password (Basic) into HTTPS_PROXY, as http://user:password@host:port`
      : `${answered}, asking for ${scheme}: check the user and password in HTTPS_PROXY, which are sent as they are (Basic)`;
  }
  if (status >= 500) return `${answered}: the proxy cannot reach it; check its name, its port, and the proxy's network`;
  return `${answered}: allow it at the proxy, or reach it directly by naming it in NO_PROXY`;
}
