import { BlockList, isIP, isIPv6, type Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import {
  type ConnectLimits,
  clientTls,
  connectTls,
  connectTo,
  isLoopback,
  keptAlive,
  printable,
  secured,
  unlessGivenUp,
} from '@isthmus/runtime';
import { type Destination, formatDestination } from '@isthmus/tunnel';
import { TRANSPORT } from './defaults.ts';
import { ask, type HttpAnswer } from './http1.ts';

/** An HTTP proxy that opens connections to others by CONNECT. */
export interface HttpProxy {
  readonly host: string;
  readonly port: number;
  /** Whether the proxy itself is reached over TLS. */
  readonly secure: boolean;
  /** `user:password`. Unset: none are sent. */
  readonly credentials?: string;
  /** For people, without the password: `http://proxy.example:3128`. */
  readonly name: string;
}

/** Returns the proxy that leads to a host, or undefined if it is reached directly. */
export type ProxyFor = (to: Destination) => HttpProxy | undefined;

type Env = Readonly<Record<string, string | undefined>>;

/** The variable that names the proxy, for errors. */
const VARIABLE = 'HTTPS_PROXY';

/**
 * Reads HTTPS_PROXY and NO_PROXY, or the same in lower case, by the rules of Go, which ANP's agent follows (golang.org/x/net/http/httpproxy,
 * google.golang.org/grpc/internal/resolver/delegatingresolver). HTTP_PROXY is for plain HTTP, which agents do not speak. Unlike in Go, an
 * unusable proxy is an error, and the connection to a proxy at `https://` is encrypted.
 * @throws if the proxy's URL is unusable. The text does not contain the URL, which may have a password in it.
 */
export function proxyFromEnvironment(env: Env): ProxyFor | undefined {
  const url = env.HTTPS_PROXY || env.https_proxy;
  if (!url) return undefined;
  const proxy = readProxy(url);
  const exempt = exemptions(env.NO_PROXY || env.no_proxy || '');
  return (to) => (isLoopback(to.host) || exempt(to) ? undefined : proxy);
}

function readProxy(text: string): HttpProxy {
  const url = parsed(/^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`);
  const secure = url?.protocol === 'https:';
  // A / in a password ends the host: what follows would be a path, and the user the host.
  const more = url && (url.pathname !== '/' || /[?#]/.test(url.href));
  if (!url?.hostname || (!secure && url.protocol !== 'http:') || more) {
    throw new Error(
      `${VARIABLE} is not the URL of a proxy: want http://[user:password@]host[:port], or https:// for TLS to the proxy. Percent-encode / ? # in a user or password`,
    );
  }
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const port = Number(url.port) || (secure ? 443 : 80);
  const user = decoded(url.username);
  return {
    host,
    port,
    secure,
    name: `${url.protocol}//${formatDestination({ host, port })}`,
    ...((url.username || url.password) && { credentials: `${user}:${decoded(url.password)}` }),
  };
}

function parsed(text: string): URL | undefined {
  return URL.canParse(text) ? new URL(text) : undefined;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw new Error(`the user or password in ${VARIABLE} is not percent-encoded: write % as %25`);
  }
}

type Exempt = (to: Destination) => boolean;

/**
 * A comma-separated list. `*` is everything; `10.0.0.0/8` a network; `10.0.0.1` an address; `example.com` a name and all names below it;
 * `.example.com` and `*.example.com` only the names below it. An address or name may have a port. Names are not resolved to compare them
 * with addresses. What is none of these is ignored.
 */
function exemptions(list: string): Exempt {
  const rules = list.split(',').flatMap((entry) => exemption(entry.trim().toLowerCase()) ?? []);
  return (to) => rules.some((rule) => rule({ host: to.host.toLowerCase(), port: to.port }));
}

function exemption(entry: string): Exempt | undefined {
  if (entry === '*') return () => true;
  const [network = '', prefix] = entry.split('/');
  if (prefix !== undefined) return /^\d{1,3}$/.test(prefix) ? addresses(network, Number(prefix)) : undefined;
  const [, bracketed, bare, digits] = /^(?:\[(.*)\]|([^:]*))(?::(\d*))?$/.exec(entry) ?? [undefined, undefined, entry];
  const name = bracketed ?? bare ?? '';
  const matches = addresses(name) ?? below(name);
  return matches && ((to) => matches(to) && (!digits || Number(digits) === to.port));
}

/** Undefined if it is no address, or no network. */
function addresses(address: string, prefix?: number): Exempt | undefined {
  if (isIP(address) === 0) return undefined;
  const list = new BlockList();
  try {
    list.addSubnet(address, prefix ?? (isIPv6(address) ? 128 : 32), familyOf(address));
  } catch {
    return undefined;
  }
  return ({ host }) => isIP(host) !== 0 && list.check(host, familyOf(host));
}

function familyOf(address: string) {
  return isIPv6(address) ? 'ipv6' : 'ipv4';
}

function below(name: string): Exempt | undefined {
  const suffix = name.replace(/^\*(?=\.)/, '');
  if (suffix === '') return undefined;
  const [dotted, itself] = suffix.startsWith('.') ? [suffix, undefined] : [`.${suffix}`, suffix];
  return ({ host }) => isIP(host) === 0 && (host === itself || host.endsWith(dotted));
}

/**
 * Connects to a destination through a proxy. The proxy resolves the destination's name. Rejects with an error that names the proxy, what it
 * answered and what to do.
 */
export async function throughProxy(proxy: HttpProxy, to: Destination, limits: ConnectLimits): Promise<Socket> {
  const late = performance.now() + limits.timeout;
  try {
    const raw = await connectTo(proxy, limits);
    return await askProxy(raw, proxy, to, { ...limits, timeout: Math.max(1, late - performance.now()) });
  } catch (error) {
    throw new Error(`through the proxy ${proxy.name}: ${(error as Error).message}`, { cause: error });
  }
}

/** On a socket that is connected to the proxy. Destroys it if the attempt fails. */
async function askProxy(
  raw: Socket,
  proxy: HttpProxy,
  to: Destination,
  { timeout, signal }: ConnectLimits,
): Promise<Socket> {
  const { host, secure } = proxy;
  const destination = formatDestination(to);
  const ignore = () => {};
  raw.on('error', ignore);
  keptAlive(raw).setNoDelay(true);
  const socket = secure ? connectTls({ socket: raw, host, servername: host }, clientTls({}), [host]) : raw;
  // Also between two steps, when nothing else listens: an error without a listener would end the process.
  if (socket !== raw) socket.on('error', ignore);
  const end = (error?: Error) => {
    socket.destroy(error);
    raw.destroy(error);
  };
  const answered = async () => {
    if (socket instanceof TLSSocket) await secured(socket);
    const head = await ask(socket, request(proxy, destination), timeout);
    if (head.status < 200 || head.status > 299) throw new Error(refusal(head, proxy, destination));
  };
  const late = `no answer within ${Math.ceil(timeout / 100) / 10} s`;
  try {
    await unlessGivenUp({ destroy: end }, answered, { timeout, late, signal });
    return socket;
  } catch (error) {
    end();
    throw error;
  }
}

function request({ credentials }: HttpProxy, destination: string): string {
  const lines = [`CONNECT ${destination} HTTP/1.1`, `host: ${destination}`, 'user-agent: isthmus'];
  if (credentials !== undefined)
    lines.push(`proxy-authorization: Basic ${Buffer.from(credentials).toString('base64')}`);
  return `${lines.join('\r\n')}\r\n\r\n`;
}

function refusal({ status, reason, fields }: HttpAnswer, { credentials }: HttpProxy, destination: string): string {
  const answered = `it answered ${printable(`${status} ${reason}`.trim().slice(0, TRANSPORT.shownAnswerCharacters))} to CONNECT ${destination}`;
  if (status === 407) {
    const scheme =
      /^[\w-]+/.exec(fields.get('proxy-authenticate') ?? '')?.[0].slice(0, TRANSPORT.shownAnswerCharacters) ??
      'credentials';
    return credentials === undefined
      ? `${answered}, asking for ${scheme}: put a user and password (Basic) into HTTPS_PROXY, as http://user:password@host:port`
      : `${answered}, asking for ${scheme}: check the user and password in HTTPS_PROXY, which are sent as they are (Basic)`;
  }
  if (status >= 500) return `${answered}: the proxy cannot reach it; check its name, its port, and the proxy's network`;
  return `${answered}: allow it at the proxy, or reach it directly by naming it in NO_PROXY`;
}
