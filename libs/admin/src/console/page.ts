import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import type { PageFiles } from '@isthmus/console';
import type { Member } from '@isthmus/directory';
import { isIP, isLoopback } from '@isthmus/runtime';
import { NOT_FOUND, send } from '@isthmus/service';

/** Of every answer. */
export const SAFE_HEADERS = {
  'cache-control': 'no-cache',
  'cross-origin-opener-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
} as const;

/** Nothing but the page's own files, nothing inline, no text that becomes markup, no frame around it. */
function policy(members: readonly string[]): string {
  return [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    ["connect-src 'self'", ...members].join(' '),
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; ');
}

/** Sends one of the page's files, or 304 to a browser that has it. @param members origins that the page may ask */
export async function sendFile(
  { headers }: IncomingMessage,
  response: ServerResponse,
  file: PageFiles[string] | undefined,
  members: readonly string[],
): Promise<void> {
  if (!file) return send(response, NOT_FOUND);
  const etag = `"${createHash('sha256').update(file.body).digest('base64url')}"`;
  const common = {
    ...SAFE_HEADERS,
    etag,
    'content-security-policy': policy(members),
    'cross-origin-resource-policy': 'same-origin',
  };
  if (headers['if-none-match'] === etag) {
    response.writeHead(304, common).end();
    return;
  }
  return send(response, { status: 200, body: file.body, headers: { ...common, 'content-type': file.type } });
}

/** What a page hears that may not ask. */
export const FOREIGN =
  'a page of another site asked: only the console itself may, and to read, the consoles of other members';

/** What is known of the port that a request came to. */
export interface Port {
  /** Both sides have shown certificates. */
  readonly tls: boolean;
  /** The plane's members, as far as they are known. */
  readonly members: readonly Member[];
  /** The name of this machine in the list of members. */
  readonly host: string;
}

/** Who asks: a page of this port, or a program (`own`); or a page of another member of the plane, which may only read. */
export type Asker = 'own' | 'member';

/**
 * Returns why a request's Host is not one of this port, or undefined. Without TLS, a page of any site can send a browser here under its
 * own name (DNS rebinding): then only an address, which no name can stand for, and localhost will do.
 */
export function faultOfHost({ host = '' }: IncomingHttpHeaders, { tls }: Pick<Port, 'tls'>): string | undefined {
  if (tls) return undefined;
  const name = host.replace(/:\d+$/, '');
  if (name === 'localhost' || isIP(name.replace(/^\[(.*)\]$/, '$1')) !== 0) return undefined;
  return 'this port is asked under a name that is not its own: use its address, or localhost';
}

/** Whether a program asks, an address that was typed, or this port's own page, by what browsers tell. */
export function isOwn(headers: IncomingHttpHeaders, { tls }: Pick<Port, 'tls'>): boolean {
  const { origin, host, 'sec-fetch-site': site } = headers;
  // Browsers leave Origin out for a page's own GETs, and for what a page of another site embeds. Programs send neither.
  if (origin === undefined) return [undefined, 'same-origin', 'none'].includes(site as string);
  return origin === `${tls ? 'https' : 'http'}://${host}`;
}

/** Says whose page sent a request; undefined for a page that may not ask. */
export function askerOf(headers: IncomingHttpHeaders, port: Port): Asker | undefined {
  if (isOwn(headers, port)) return 'own';
  return memberOrigins(port).includes(headers.origin ?? '') ? 'member' : undefined;
}

/**
 * Returns the origins of the members whose pages may read here, and which this port's page may ask. Without TLS they are on this machine's
 * loopback: on the way from anywhere else, anyone could have changed the page.
 */
export function memberOrigins({ tls, members, host }: Port): string[] {
  return members
    .filter(({ adminAddress, host: on }) => {
      const loopback = isLoopback(adminAddress.replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1'));
      return loopback ? on === host : tls;
    })
    .map(({ adminAddress }) => originOf(adminAddress, tls))
    .filter((origin) => origin !== undefined);
}

/** The registry's content is written by members, but goes into a header here. */
function originOf(address: string, tls: boolean): string | undefined {
  const url = `${tls ? 'https' : 'http'}://${address}`;
  return URL.canParse(url) && /^[\w.:[\]-]+$/.test(address) ? new URL(url).origin : undefined;
}
