import { createServer, type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { Admitted, bind, remoteOf, within } from '@isthmus/runtime';
import { SERVICE } from './defaults.ts';

/** A condition that a program needs in order to work. */
export interface Check {
  readonly name: string;
  readonly ok: boolean;
  /** Why it fails; or, while it passes, details that only the verbose page shows. May be empty. */
  readonly detail: string;
}

/** How /readyz answers while a check fails. Upstream's server and agent do it differently. */
export interface Unready {
  readonly status: 500 | 503;
  /** Only the `details`, or the whole list of `checks`. */
  readonly body: 'details' | 'checks';
}

export const SERVER_UNREADY: Unready = { status: 500, body: 'details' };
export const AGENT_UNREADY: Unready = { status: 503, body: 'checks' };

export interface HealthOptions {
  /** Empty for all addresses. */
  readonly host: string;
  /** 0 for any free port. With `reusePort`, another process may listen there too (SO_REUSEPORT): each answers some requests. */
  readonly port: number;
  readonly reusePort?: boolean;
  readonly checks: () => readonly Check[];
  readonly unready: Unready;
  readonly metrics: Metrics;
  readonly refused?: Refused;
}

/**
 * Serves /healthz, /readyz, /ready (its old name) and /metrics. /healthz reports that the process is up, so open it after all other
 * listeners. Rejects with the system's error if it cannot listen.
 * @returns its address, and what closes the listener and every connection
 */
export async function serveHealth(options: HealthOptions) {
  const { host, port, reusePort = false, refused = () => {} } = options;
  const { requestMs, idleMs, connections, connectionsOfSource, headBytes } = SERVICE;
  const limits = { most: connections, mostOfSource: connectionsOfSource, displaces: true };
  const admitted = new Admitted(limits, refused);
  const timeouts = { headersTimeout: requestMs, requestTimeout: requestMs, keepAliveTimeout: idleMs };
  const server = createServer({ ...timeouts, maxHeaderSize: headBytes }, (request, response) => {
    if (!takesTurns(request, response, refused)) return;
    admitted.asked(request.socket);
    // What may follow is not read.
    if (request.headers['content-length'] || request.headers['transfer-encoding']) response.shouldKeepAlive = false;
    void send(response, pageFor(request, options));
  });
  refuseBadRequests(server, refused);
  const { address, close: stop } = await bind(server, {
    at: { host, port, reusePort },
    limits: admitted,
    failed: (error) => refused('', error),
  });
  const close = async () => {
    const closed = stop();
    server.closeAllConnections();
    await closed;
  };
  return { address, close, [Symbol.asyncDispose]: close };
}

/** The last answer on each connection. */
const answers = new WeakMap<Socket, ServerResponse>();

/** Ends a connection that asks again before it has its answer: one read holds a thousand requests. Returns whether it waits for its answers. */
export function takesTurns({ socket }: IncomingMessage, response: ServerResponse, refused: Refused): boolean {
  if (socket.destroyed) return false;
  const before = answers.get(socket);
  answers.set(socket, response);
  if (!before || before.writableEnded) return true;
  refused(remoteOf(socket), new Error('it asked again before it had its answer'));
  socket.destroy();
  return false;
}

async function pageFor(request: IncomingMessage, { checks, unready, metrics }: HealthOptions): Promise<Page> {
  const url = urlOf(request);
  switch (url?.pathname) {
    case undefined:
      return BAD_TARGET;
    case '/healthz':
      return { status: 200, body: 'ok' };
    case '/ready':
    case '/readyz':
      return readiness(checks(), unready, url.searchParams);
    case '/metrics':
      return metricsPage(metrics, request);
    default:
      return NOT_FOUND;
  }
}

/** The list of checks has the format of Kubernetes' own health pages, and so has the query: `?verbose`, `?exclude=NAME`. */
function readiness(checks: readonly Check[], unready: Unready, query: URLSearchParams): Page {
  const verbose = query.has('verbose');
  const excluded = new Set(query.getAll('exclude'));
  const lines = checks.map((check) =>
    excluded.has(check.name) ? `[+]${check.name} excluded: ok\n` : line(check, verbose),
  );
  const failed = checks.filter(({ ok, name }) => !ok && !excluded.has(name));
  if (failed.length === 0) return { status: 200, body: verbose ? `${lines.join('')}check passed\n` : 'ok' };
  if (verbose || unready.body === 'checks') return { status: unready.status, body: lines.join('') };
  return { status: unready.status, body: failed.map(({ detail }) => detail).join('\n') };
}

/** Upstream's list shows no details of passing checks, so neither does the page without `verbose`. */
function line({ name, ok, detail }: Check, verbose: boolean): string {
  if (!ok) return `[-]${name} failed: ${detail}\n`;
  return verbose && detail !== '' ? `[+]${name} ok: ${detail}\n` : `[+]${name} ok\n`;
}

/** Checks that several programs share. The texts of failing checks are what an operator sees first. */

/** What a process knows about its registry's health. */
export interface RegistryHealth {
  /** Whether a first copy has arrived. */
  readonly synced: boolean;
  readonly up: boolean;
  /** The last report about it. */
  readonly detail: string;
  /** When it last answered, in milliseconds of `performance.now()`; undefined before the first answer. */
  readonly lastAnswerAt?: number | undefined;
}

export type AdmissionState = 'open' | 'leaving' | 'draining';

export function admissionCheck(admission: AdmissionState): Check {
  const details = { open: '', leaving: 'leaving: still accepts connections', draining: 'draining' };
  return { name: 'admission', ok: admission === 'open', detail: details[admission] };
}

/** Whether callers find the unix sockets of a process that listens there. */
export function socketsCheck(listeners: readonly { readonly lost: string | undefined }[]): Check {
  const lost = listeners.flatMap((listener) => listener.lost ?? []);
  return { name: 'sockets', ok: lost.length === 0, detail: lost.join('; ') };
}

/** Passes as long as there is a copy, because dials use the copy. The detail says how old the last answer is. */
export function registryCheck(registry: RegistryHealth, now = performance.now()): Check {
  const { synced, up, detail, lastAnswerAt } = registry;
  const name = 'registry';
  if (!synced) return { name, ok: false, detail: `no copy of the registry yet: ${detail}` };
  const age = lastAnswerAt === undefined ? '' : `answered ${((now - lastAnswerAt) / 1000).toFixed(1)} s ago`;
  if (up) return { name, ok: true, detail: age || detail };
  return { name, ok: true, detail: `${age === '' ? 'no answer' : age}, dials use its copy: ${detail}` };
}

/** Tenants with sessions, and the number of sessions. */
type Tenants = Iterable<readonly [tenant: string, sessions: number]>;

/**
 * What sessions a gateway knows. The detail is computed only when it is shown.
 * @param needed fails while this tenant has none; unset: always passes
 */
export function sessionsCheck(
  directory: { sessionsOf(tenant: string): number; tenants(): Tenants; readonly quarantinedSessions: number },
  needed?: string,
): Check {
  return {
    name: 'sessions',
    ok: needed === undefined || directory.sessionsOf(needed) > 0,
    get detail() {
      if (this.ok) {
        const kept = directory.quarantinedSessions;
        return countSessions(directory.tenants()) + (kept > 0 ? `, ${kept} in quarantine` : '');
      }
      const others = sum(directory.tenants());
      return others === 0 ? NO_SESSION : `${NO_SESSION} (of other tenants: ${others})`;
    },
  };
}

const NO_SESSION = 'no agent has a session';

export function countSessions(tenants: Tenants): string {
  const all = [...tenants].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1));
  if (all.length === 0) return NO_SESSION;
  const listed = all.slice(0, SERVICE.tenantsListed).map(([tenant, sessions]) => `${nameOf(tenant)}: ${sessions}`);
  const rest = all.slice(SERVICE.tenantsListed);
  if (rest.length > 0) listed.push(`${rest.length} others: ${sum(rest)}`);
  return `sessions: ${sum(all)} (${listed.join(', ')})`;
}

function sum(tenants: Tenants): number {
  return [...tenants].reduce((total, [, sessions]) => total + sessions, 0);
}

/** Returns a tenant's name, in quotes if it could be mistaken for anything else on the page. */
function nameOf(tenant: string): string {
  return /^[\w.-]{1,64}$/.test(tenant) ? tenant : JSON.stringify(tenant.slice(0, 64));
}

/** Called with the remote address and the error when a connection was refused because it sent no valid request. */
export type Refused = (remote: string, error: Error) => void;

const STATUS: Readonly<Record<string, number>> = { HPE_HEADER_OVERFLOW: 431, ERR_HTTP_REQUEST_TIMEOUT: 408 };

/** How a connection fails whose client went away, by itself or with its network. It has asked for nothing wrong. */
const GONE: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE', 'ETIMEDOUT']);

/** Answers invalid HTTP/1.1 requests with the matching status, as Node does, and reports them to `refused`. */
export function refuseBadRequests(server: Server, refused: Refused): void {
  server.on('clientError', (error: NodeJS.ErrnoException, stream) => {
    const socket = stream as Socket;
    const { code = '' } = error;
    if (!GONE.has(code)) refused(remoteOf(socket), error);
    const status = STATUS[code] ?? 400;
    if (socket.writable) socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close\r\n\r\n`);
    socket.destroySoon();
  });
}

/** An HTTP answer. */
export interface Page {
  readonly status: number;
  readonly body: string | Uint8Array;
  readonly headers?: Readonly<Record<string, string>>;
}

interface MetricsPage {
  readonly contentType: string;
  readonly body: string | Uint8Array;
}

export const NOT_FOUND: Page = { status: 404, body: '404 page not found\n' };
export const BAD_TARGET: Page = { status: 400, body: 'bad request target\n' };

/** Sends a page, or a 500 with the error if the page failed. */
export async function send(response: ServerResponse, page: Page | Promise<Page>): Promise<void> {
  const failed = (error: unknown): Page => ({
    status: 500,
    body: `${error instanceof Error ? error.message : error}\n`,
  });
  const { status, body, headers } = await Promise.resolve(page).catch(failed);
  const length = Buffer.byteLength(body);
  response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8', 'content-length': length, ...headers });
  response.end(body);
}

/** Returns the metrics page in the format that a scraper's `Accept` header asks for. */
export type Metrics = (accept?: string) => Promise<MetricsPage>;

export async function metricsPage(metrics: Metrics, { headers }: IncomingMessage): Promise<Page> {
  const page = metrics(headers.accept);
  if (!(await within(page, SERVICE.metricsMs))) return { status: 503, body: 'the metrics were not ready in time\n' };
  const { contentType, body } = await page;
  return { status: 200, body, headers: { 'content-type': contentType } };
}

/** Returns a request's target, or undefined if it is no path. */
export function urlOf(request: IncomingMessage): URL | undefined {
  const target = `http://host${request.url ?? ''}`;
  return request.url?.startsWith('/') && URL.canParse(target) ? new URL(target) : undefined;
}
