import { addressBytes, isIP, isIPv6 } from '@isthmus/runtime';
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

/** What a policy says about a dial, and which of its rules says so. */
export interface PolicyVerdict {
  readonly allowed: boolean;
  /** Empty if no rule matches: then a policy with a list of what is allowed refuses the dial, and any other allows it. */
  readonly rule: string;
}

/** What callers may dial. */
export interface DialPolicy {
  /**
   * @param caller the caller's name; empty if it has none
   * @param addresses what a name was resolved to, at an agent; none where nobody will judge its addresses. Unset, it is not resolved yet: a
   * name that only rules by `cidr` can allow is left to the agent.
   */
  verdict(destination: Destination, caller: string, addresses?: readonly string[]): PolicyVerdict;
}

/** The groups of addresses that no agent dials. A flag lifts a prohibition by its name. */
export const PROHIBITIONS = ['own-ports', 'link-local', 'metadata'] as const;

/** The same for gateways, which share their machine with the plane. */
export const DIRECT_PROHIBITIONS = ['loopback', ...PROHIBITIONS] as const;

export type Prohibition = (typeof DIRECT_PROHIBITIONS)[number];

interface ProhibitedOptions {
  /** Ports on which the program itself listens. */
  readonly ownPorts: readonly number[];
  /** Returns this machine's current addresses, except loopback. */
  readonly ownAddresses: () => readonly string[];
  readonly lifted: readonly Prohibition[];
}

/** Returns which prohibition forbids an address, or undefined. @param address as passed to connect(2), so after DNS */
export type Prohibited = (address: string, port: number) => Prohibition | undefined;

/**
 * IPv6 addresses that embed an IPv4 address, in digits: IPv4-mapped ones (::ffff:0:0/96), NAT64's well-known prefix (64:ff9b::/96, RFC 6052
 * section 2.1) and its prefix for local use (64:ff9b:1::/48, RFC 8215), IPv4-compatible addresses (::/96, RFC 4291 section 2.5.5.1),
 * IPv4-translated ones (::ffff:0:0:0/96, RFC 2765 section 2.1), 6to4 (2002::/16, RFC 3056).
 */
const CARRIES_IPV4 =
  /^(?:0{20}ffff|0064ff9b0{16}|0064ff9b0001.{12}|0{24}|0{16}ffff0{4})(?<last>.{8})$|^2002(?<second>.{8})/;

/**
 * Metadata services, in this order: AWS and most others, AWS over IPv6, AWS containers, AWS pods over IPv4 and over IPv6, Google Cloud
 * over IPv6, Scaleway over IPv6, Azure, Alibaba.
 */
const METADATA: ReadonlySet<string> = new Set(
  [
    '169.254.169.254',
    'fd00:ec2::254',
    '169.254.170.2',
    '169.254.170.23',
    'fd00:ec2::23',
    'fd20:ce::254',
    'fd00:42::42',
    '168.63.129.16',
    '100.100.100.200',
  ].map(plain),
);
/** 169.254.0.0/16 and fe80::/10. */
const LINK_LOCAL = /^169\.254\.|^fe[89ab]/;
/** 127.0.0.0/8, 0.0.0.0/8, ::1 and ::, since what is unspecified reaches the machine itself. */
const LOOPBACK = /^(?:127|0)\.|^0{31}[01]$/;

export function prohibitedBy({ ownPorts, ownAddresses, lifted }: ProhibitedOptions): Prohibited {
  const holds = (name: Prohibition) => !lifted.includes(name);
  return (text, port) => {
    const address = plain(text);
    const isMetadata = METADATA.has(address);
    if (isMetadata && holds('metadata')) return 'metadata';
    // Some metadata addresses are link-local too. Only `metadata` decides about them.
    if (!isMetadata && LINK_LOCAL.test(address) && holds('link-local')) return 'link-local';
    const isLoopback = LOOPBACK.test(address);
    if (isLoopback && holds('loopback')) return 'loopback';
    if (!ownPorts.includes(port) || !holds('own-ports')) return undefined;
    return isLoopback || ownAddresses().some((each) => plain(each) === address) ? 'own-ports' : undefined;
  };
}

/** Returns the one spelling of an address, without its zone: an IPv4 address, also one that an IPv6 address embeds, or 32 hexadecimal digits. */
function plain(text: string): string {
  const address = text.replace(/%.*$/s, '');
  if (isIP(address) === 4) return address;
  const digits = addressBytes(address)?.toString('hex');
  if (digits === undefined) throw new Error(`${JSON.stringify(text)} is no address`);
  // `::` and `::1` look IPv4-compatible, but belong to IPv6.
  const { last, second } = (!digits.startsWith('0'.repeat(30)) && CARRIES_IPV4.exec(digits)?.groups) || {};
  const carried = last ?? second;
  return carried === undefined ? digits : Buffer.from(carried, 'hex').join('.');
}

/** Returns the address of the host that is reached, if it is another: the IPv4 address that an IPv6 address embeds, or loopback for an unspecified one. */
export function reachedAddress(text: string): string | undefined {
  const address = plain(text);
  if (address.startsWith('0.')) return '127.0.0.1';
  if (address === '0'.repeat(32)) return '::1';
  return isIP(address) === 4 && address !== text ? address : undefined;
}
