import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Admitted, type AdmittedLimits, bind } from '@isthmus/runtime';
import { type Refused, refuseBadRequests } from './bad-requests.ts';
import { BAD_TARGET, type Metrics, metricsPage, NOT_FOUND, type Page, send, urlOf } from './pages.ts';

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
  /** 0 for any free port. */
  readonly port: number;
  readonly checks: () => readonly Check[];
  readonly unready: Unready;
  readonly metrics: Metrics;
  readonly refused?: Refused;
}

export interface HealthServer extends AsyncDisposable {
  readonly address: AddressInfo;
  /** Closes the listener and every connection. */
  close(): Promise<void>;
}

/** Upstream's ReadHeaderTimeout. */
const REQUEST_MS = 60_000;
/** Kubelets and scrapers keep their connections. Upstream's servers hold idle ones for at least 60 s. */
const IDLE_MS = 120_000;
/** Connections at once, in all and from one source, which may be a proxy of many kubelets and scrapers. */
const ADMITTED: AdmittedLimits = { most: 1024, mostOfSource: 256 };

/**
 * Serves /healthz, /readyz, /ready (its old name) and /metrics. /healthz reports that the process is up, so open it after all other
 * listeners. Rejects with the system's error if it cannot listen.
 */
export async function serveHealth(options: HealthOptions): Promise<HealthServer> {
  const { host, port, refused = () => {} } = options;
  const timeouts = { headersTimeout: REQUEST_MS, requestTimeout: REQUEST_MS, keepAliveTimeout: IDLE_MS };
  const server = createServer(timeouts, (request, response) => void send(response, pageFor(request, options)));
  refuseBadRequests(server, refused);
  const { address, close: stop } = await bind(server, {
    at: { host, port },
    door: new Admitted(ADMITTED, refused),
    failed: (error) => refused('', error),
  });
  const close = async () => {
    const closed = stop();
    server.closeAllConnections();
    await closed;
  };
  return { address, close, [Symbol.asyncDispose]: close };
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
      return readiness(checks(), unready, url?.searchParams.has('verbose') ?? false);
    case '/metrics':
      return metricsPage(metrics, request);
    default:
      return NOT_FOUND;
  }
}

/** The list of checks has the format of Kubernetes' own health pages. */
function readiness(checks: readonly Check[], unready: Unready, verbose: boolean): Page {
  const lines = checks.map((check) => line(check, verbose));
  const failed = checks.filter(({ ok }) => !ok);
  if (failed.length === 0) return { status: 200, body: verbose ? `${lines.join('')}check passed\n` : 'ok' };
  if (verbose || unready.body === 'checks') return { status: unready.status, body: lines.join('') };
  return { status: unready.status, body: failed.map(({ detail }) => detail).join('\n') };
}

/** Upstream's list shows no details of passing checks, so neither does the page without `verbose`. */
function line({ name, ok, detail }: Check, verbose: boolean): string {
  if (!ok) return `[-]${name} failed: ${detail}\n`;
  return verbose && detail !== '' ? `[+]${name} ok: ${detail}\n` : `[+]${name} ok\n`;
}
