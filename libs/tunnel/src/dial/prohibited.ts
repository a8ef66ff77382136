import ipaddr from 'ipaddr.js';

/** What no agent dials, unless a flag lifts it by this name. */
export const PROHIBITIONS = ['own-ports', 'link-local', 'metadata'] as const;

export type Prohibition = (typeof PROHIBITIONS)[number];

export interface ProhibitedOptions {
  /** Ports where the agent itself listens, for operators and probes. */
  readonly ownPorts: readonly number[];
  /** This machine's addresses beside loopback, as they are now. */
  readonly ownAddresses: () => readonly string[];
  readonly lifted: readonly Prohibition[];
}

/** Tells why an address may not be dialled. @param address as it goes to connect(2): a name was resolved before */
export type Prohibited = (address: string, port: number) => Prohibition | undefined;

type Range = readonly [address: ipaddr.IPv4 | ipaddr.IPv6, bits: number];

/**
 * Of AWS and most others, of AWS over IPv6, of AWS for containers and for pods (169.254.170.23 is its IPv4), of Google Cloud over IPv6,
 * of Scaleway over IPv6, of Azure, of Alibaba.
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
  return (text, port) => {
    const address = plain(text);
    if (holds('metadata') && within(address, metadata)) return 'metadata';
    // Metadata services have link-local addresses too: to lift one name does not lift the other.
    if (holds('link-local') && within(address, linkLocal) && !within(address, metadata)) return 'link-local';
    if (!holds('own-ports') || !ownPorts.includes(port)) return undefined;
    const own =
      within(address, loopback) || ownAddresses().some((each) => plain(each).toString() === address.toString());
    return own ? 'own-ports' : undefined;
  };
}

/**
 * An IPv4 address in IPv6, and the byte where it begins: NAT64's well-known prefix (RFC 6052 section 2.1) and its prefix for local
 * use (RFC 8215), IPv4-compatible addresses (RFC 4291 section 2.5.5.1), 6to4 (RFC 3056).
 */
const CARRIES_IPV4: readonly (readonly [range: Range, at: number])[] = [
  [rangeOf('64:ff9b::/96'), 12],
  [rangeOf('64:ff9b:1::/48'), 12],
  [rangeOf('::/96'), 12],
  [rangeOf('2002::/16'), 2],
];

/** An address without its zone, and that of IPv4 which one of IPv6 stands for. */
function plain(text: string): ipaddr.IPv4 | ipaddr.IPv6 {
  // Mapped ones (::ffff:127.0.0.1) are read so by `process`.
  const address = ipaddr.process(text.replace(/%.*$/, ''));
  const carried = CARRIES_IPV4.find(([range]) => within(address, [range]));
  if (!carried) return address;
  const [, at] = carried;
  const bytes = address.toByteArray();
  // Not :: and ::1, which are IPv6's own.
  return bytes.slice(0, 15).every((byte) => byte === 0) ? address : new ipaddr.IPv4(bytes.slice(at, at + 4));
}

function rangeOf(cidr: string): Range {
  return ipaddr.parseCIDR(cidr);
}

function within(address: ipaddr.IPv4 | ipaddr.IPv6, ranges: readonly Range[]): boolean {
  return ranges.some(([network, bits]) => network.kind() === address.kind() && address.match(network, bits));
}
