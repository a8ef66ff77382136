import { getOrPut, isIPv6, LruMap } from '@isthmus/runtime';
import ipaddr from 'ipaddr.js';
import { TUNNEL } from './defaults.ts';
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

type Range = readonly [address: ipaddr.IPv4 | ipaddr.IPv6, bits: number];

/**
 * Metadata services, in this order: AWS and most others, AWS over IPv6, AWS containers, AWS pods over IPv4 and over IPv6, Google Cloud
 * over IPv6, Scaleway over IPv6, Azure, Alibaba.
 */
const METADATA = [
  '169.254.169.254/32',
  'fd00:ec2::254/128',
  '169.254.170.2/32',
  '169.254.170.23/32',
  'fd00:ec2::23/128',
  'fd20:ce::254/128',
  'fd00:42::42/128',
  '168.63.129.16/32',
  '100.100.100.200/32',
];
const LINK_LOCAL = ['169.254.0.0/16', 'fe80::/10'];
const LOOPBACK = ['127.0.0.0/8', '::1/128', '0.0.0.0/8', '::/128'];

const [metadata, linkLocal, loopback] = [METADATA, LINK_LOCAL, LOOPBACK].map((list) => list.map(rangeOf)) as [
  Range[],
  Range[],
  Range[],
];

export function prohibitedBy({ ownPorts, ownAddresses, lifted }: ProhibitedOptions): Prohibited {
  const holds = (name: Prohibition) => !lifted.includes(name);
  const ofRanges = (address: ipaddr.IPv4 | ipaddr.IPv6): Prohibition | undefined => {
    if (holds('metadata') && isIn(address, metadata)) return 'metadata';
    // Some metadata addresses are link-local too. Only `metadata` decides about them.
    if (holds('link-local') && isIn(address, linkLocal) && !isIn(address, metadata)) return 'link-local';
    return holds('loopback') && isIn(address, loopback) ? 'loopback' : undefined;
  };
  // To parse an address and match it takes a twentieth of an agent's dial.
  const judged = new LruMap<string, { readonly prohibition: Prohibition | undefined }>(TUNNEL.judgedAddresses);
  return (text, port) => {
    const { prohibition } = getOrPut(judged, text, () => ({ prohibition: ofRanges(plain(text)) }));
    if (prohibition || !holds('own-ports') || !ownPorts.includes(port)) return prohibition;
    const address = plain(text);
    const own = isIn(address, loopback) || ownAddresses().some((each) => plain(each).toString() === address.toString());
    return own ? 'own-ports' : undefined;
  };
}

/**
 * IPv6 ranges that embed an IPv4 address, and the byte where it begins: NAT64's well-known prefix (RFC 6052 section 2.1) and its prefix
 * for local use (RFC 8215), IPv4-compatible addresses (RFC 4291 section 2.5.5.1), IPv4-translated ones (RFC 2765 section 2.1), 6to4 (RFC 3056).
 */
const CARRIES_IPV4: readonly (readonly [range: Range, at: number])[] = [
  [rangeOf('64:ff9b::/96'), 12],
  [rangeOf('64:ff9b:1::/48'), 12],
  [rangeOf('::/96'), 12],
  [rangeOf('::ffff:0:0:0/96'), 12],
  [rangeOf('2002::/16'), 2],
];

/** Parses an address and drops its zone. Returns the IPv4 address that an IPv6 address embeds, if it embeds one. */
function plain(text: string): ipaddr.IPv4 | ipaddr.IPv6 {
  // `process` already converts IPv4-mapped addresses (::ffff:127.0.0.1).
  const address = ipaddr.process(text.replace(/%.*$/, ''));
  const carried = CARRIES_IPV4.find(([range]) => isIn(address, [range]));
  if (!carried) return address;
  const [, at] = carried;
  const bytes = address.toByteArray();
  // `::` and `::1` look IPv4-compatible, but belong to IPv6.
  return bytes.slice(0, 15).every((byte) => byte === 0) ? address : new ipaddr.IPv4(bytes.slice(at, at + 4));
}

/**
 * Returns the address of the host that is reached: the IPv4 address that an IPv6 address embeds, or loopback for the unspecified
 * address. Any other address stays as it is.
 */
export function reachedAddress(text: string): string {
  const address = plain(text);
  if (address.range() !== 'unspecified') return address.toString();
  return address.kind() === 'ipv4' ? '127.0.0.1' : '::1';
}

function rangeOf(cidr: string): Range {
  return ipaddr.parseCIDR(cidr);
}

function isIn(address: ipaddr.IPv4 | ipaddr.IPv6, ranges: readonly Range[]): boolean {
  return ranges.some(([network, bits]) => network.kind() === address.kind() && address.match(network, bits));
}
