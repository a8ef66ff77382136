import { isIP } from '@isthmus/runtime';
import ipaddr from 'ipaddr.js';

export type Address = ipaddr.IPv4 | ipaddr.IPv6;

/** Reads an address, without its zone. IPv4-mapped IPv6 addresses count as IPv4. */
export function readAddress(text: string): Address {
  return ipaddr.process(text.replace(/%.*$/s, ''));
}

/**
 * Returns the IPv4 address that resolvers read in `0x7f.1` or `2130706433`, as inet_aton does; undefined for a name. Most names are told
 * by their letters, because ipaddr.js throws for them, which costs 50 microseconds.
 */
export function spelledAddress(host: string): Address | undefined {
  return /^\d[\da-fx.]*$/i.test(host) && ipaddr.IPv4.isValid(host) ? ipaddr.IPv4.parse(host) : undefined;
}

/** A prefix such as `10.0.0.0/8`; an address alone is a prefix of its own. */
export class Prefix {
  readonly #network: Address;
  readonly #bits: number;

  /** @throws Error if the text is neither a prefix nor an address, or has bits set behind its length */
  constructor(text: string) {
    const [address = '', bits, ...rest] = text.split('/');
    if (isIP(address) === 0 || rest.length > 0) throw new Error(`"${text}" is no prefix such as 10.0.0.0/8`);
    this.#network = ipaddr.process(address);
    const most = this.#network.kind() === 'ipv4' ? 32 : 128;
    this.#bits = bits === undefined ? most : Number(bits);
    if (!/^\d{1,3}$/.test(bits ?? '0') || this.#bits > most)
      throw new Error(`"${text}": a prefix of this kind has 0 to ${most} bits`);
    const masked = masking(this.#network, this.#bits);
    if (masked !== this.#network.toString())
      throw new Error(`"${text}" has bits set behind its length: write ${masked}/${this.#bits}`);
  }

  /** Whether an address lies in it. IPv4-mapped IPv6 addresses count as IPv4. */
  has(address: string | Address): boolean {
    const read = typeof address === 'string' ? readAddress(address) : address;
    return read.kind() === this.#network.kind() && read.match(this.#network, this.#bits);
  }

  /** Whether all of another prefix lies in it. */
  covers(other: Prefix): boolean {
    return (
      other.#network.kind() === this.#network.kind() &&
      other.#bits >= this.#bits &&
      other.#network.match(this.#network, this.#bits)
    );
  }
}

function masking(address: Address, bits: number): string {
  const bytes = address.toByteArray();
  const kept = bytes.map((byte, index) => byte & (0xff00 >> Math.min(8, Math.max(0, bits - 8 * index))) & 0xff);
  return ipaddr.fromByteArray(kept).toString();
}

/** A DNS name, or `*.` and one: the star stands for one or more labels. */
export class HostPattern {
  readonly #name: string;
  readonly #suffix: string;
  readonly #below: boolean;

  /** @throws Error if the text is no such pattern */
  constructor(text: string) {
    this.#below = text.startsWith('*.');
    this.#name = comparableHost(this.#below ? text.slice(2) : text);
    this.#suffix = `.${this.#name}`;
    if (isIP(this.#name) !== 0 || spelledAddress(this.#name))
      throw new Error(`"${text}" is an address: list it under cidr`);
    if (!HOST.test(this.#name)) throw new Error(`"${text}" is neither a DNS name nor a pattern such as *.example.com`);
  }

  /** Whether a name matches. Case and a dot at the end do not count. */
  has(host: string): boolean {
    return this.hasCanonical(comparableHost(host));
  }

  /** As `has`, for a name that is comparableHost already. */
  hasCanonical(name: string): boolean {
    return this.#below ? name.endsWith(this.#suffix) : name === this.#name;
  }
}

/** Labels of letters, digits, hyphens and underscores (which Kubernetes' SRV names have), 253 characters at most. */
const HOST = /^(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$/;

/** In lower case, without a dot at its end. */
export function comparableHost(host: string): string {
  const name = host.endsWith('.') ? host.slice(0, -1) : host;
  return name.toLowerCase();
}
