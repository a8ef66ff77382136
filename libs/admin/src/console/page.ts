import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import type { PageFiles } from '@isthmus/console';
import { isIP } from '@isthmus/runtime';
import { NOT_FOUND, send } from '@isthmus/service';

/** Of every answer. */
export const SAFE_HEADERS = {
  'cache-control': 'no-cache',
  'cross-origin-opener-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
} as const;

/** Nothing but the page's own files, nothing inline, no text that becomes markup, no frame around it. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ');

/** Sends one of the page's files, or 304 to a browser that has it. */
export async function sendFile(
  { headers }: IncomingMessage,
  response: ServerResponse,
  file: PageFiles[string] | undefined,
): Promise<void> {
  if (!file) return send(response, NOT_FOUND);
  const etag = `"${createHash('sha256').update(file.body).digest('base64url')}"`;
  const common = {
    ...SAFE_HEADERS,
    etag,
    'content-security-policy': POLICY,
    'cross-origin-resource-policy': 'same-origin',
  };
  if (headers['if-none-match'] === etag) {
    response.writeHead(304, common).end();
    return;
  }
  return send(response, { status: 200, body: file.body, headers: { ...common, 'content-type': file.type } });
}

/** What a page hears that may not ask. */
export const FOREIGN = 'a page of another site asked: only the console itself may';

/** How the port that a request came to is reached. */
interface Port {
  /** Both sides have shown certificates. */
  readonly tls: boolean;
}

/**
 * Returns why a request's Host is not one of this port, or undefined. Without TLS, a page of any site can send a browser here under its
 * own name (DNS rebinding): then only an address, which no name can stand for, and localhost will do.
 */
export function faultOfHost({ host = '' }: IncomingHttpHeaders, { tls }: Port): string | undefined {
  if (tls) return undefined;
  const name = host.replace(/:\d+$/, '');
  if (name === 'localhost' || isIP(name.replace(/^\[(.*)\]$/, '$1')) !== 0) return undefined;
  return 'this port is asked under a name that is not its own: use its address, or localhost';
}

/** Whether a program asks, an address that was typed, or this port's own page, by what browsers tell. */
export function isOwn(headers: IncomingHttpHeaders, { tls }: Port): boolean {
  const { origin, host, 'sec-fetch-site': site } = headers;
  // Browsers leave Origin out for a page's own GETs, and for what a page of another site embeds. Programs send neither.
  if (origin === undefined) return [undefined, 'same-origin', 'none'].includes(site as string);
  return origin === `${tls ? 'https' : 'http'}://${host}`;
}
