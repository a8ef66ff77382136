import type { IncomingMessage, ServerResponse } from 'node:http';
import type { PageFiles } from '@isthmus/console';
import { BAD_TARGET, send, urlOf } from '@isthmus/service';
import { faultOfVisitor, visitorOf } from '../access/visitor.ts';
import type { AdminBackend } from '../backend.ts';
import { SAFE_HEADERS, sendFile } from './page.ts';

export interface ConsoleOptions {
  readonly when: 'auto' | 'on' | 'off';
  /** With `{trace_id}`; empty for no links. */
  readonly traceUrl: string;
}

/** How the admin port is reached. */
export interface Reached {
  readonly tls: boolean;
  /** Only from this machine: a loopback address or a unix socket. */
  readonly local: boolean;
}

const PATH = '/console/';

const OFF = 'the console is off here: --console=on turns it on';
const UNTRUSTED =
  'the console works only on a loopback address or with mutual TLS: set --admin-server-cert, --admin-server-key and --admin-ca-cert';

/** Whether a request is for the console. */
export function isForConsole({ url = '' }: IncomingMessage): boolean {
  return /^\/console(?=[/?]|$)/.test(url);
}

/** Answers such a request: with the page, below /console/. */
export async function serveConsole(
  request: IncomingMessage,
  response: ServerResponse,
  { when, traceUrl }: ConsoleOptions,
  { tls, local }: Reached,
  { identity, tenants }: Pick<AdminBackend, 'identity' | 'tenants'>,
): Promise<void> {
  const visitor = visitorOf(request.socket);
  const refuse = (status: number, why: string) => send(response, { status, body: `${why}\n`, headers: SAFE_HEADERS });
  if (when === 'off' || (when === 'auto' && !local)) return refuse(404, OFF);
  if (!tls && !local) return refuse(403, UNTRUSTED);
  const fault = faultOfVisitor(visitor, tenants);
  if (fault) return refuse(403, fault.message);
  const url = urlOf(request);
  if (!url) return send(response, BAD_TARGET);
  if (url.pathname === PATH.slice(0, -1)) return send(response, { status: 301, body: '', headers: { location: PATH } });
  const { pageFiles } = await import('@isthmus/console');
  const settings = JSON.stringify({ traceUrl, tenant: visitor.principal?.tenant ?? '', member: identity.memberId });
  const files: PageFiles = {
    ...(await pageFiles()),
    'settings.json': { type: 'application/json', body: settings },
  };
  const file = url.pathname.slice(PATH.length) || 'index.html';
  return sendFile(request, response, Object.hasOwn(files, file) ? files[file] : undefined);
}
