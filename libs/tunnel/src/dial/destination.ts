import { isIPv6 } from '@isthmus/runtime';
import { DialError } from './errors.ts';

/** What a dial connects to. `host` is a name, or an address without brackets. */
export interface Destination {
  readonly host: string;
  readonly port: number;
}

// A name, an IPv4 address, or a bracketed IPv6 address with an optional zone; then a port.
const AUTHORITY = /^(?:\[([0-9A-Fa-f:.]+(?:%[\w.~-]+)?)\]|([^\s:/?#@[\]\\]{1,253})):(\d{1,5})$/;

/**
 * Parses `host:port` as in an HTTP CONNECT target or a DIAL_REQ's address.
 * @throws DialError http_request_error if the text is malformed.
 */
export function parseDestination(authority: string): Destination {
  const match = AUTHORITY.exec(authority);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  const badAddress = match?.[1] !== undefined && !isIPv6(match[1]);
  if (!match || host === undefined || badAddress || port < 1 || port > 65535) {
    const shown = JSON.stringify(authority.slice(0, 200));
    throw new DialError('http_request_error', `bad destination ${shown}: want host:port or [ipv6]:port`);
  }
  return { host, port };
}

/** `host:port`, with brackets around IPv6: the form of RFC 9112 section 3.2.3 and of Go's net.JoinHostPort. */
export function formatDestination({ host, port }: Destination): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}
