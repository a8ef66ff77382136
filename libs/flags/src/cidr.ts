import { isIP } from 'node:net';

/** A network: `10.0.0.0/8`. */
export interface Cidr {
  readonly address: string;
  readonly bits: number;
  readonly family: 'ipv4' | 'ipv6';
}

/** @returns undefined for a text that is no network */
export function readCidr(text: string): Cidr | undefined {
  const [, address = '', bits] = /^([^/]+)\/(\d{1,3})$/.exec(text) ?? [];
  const version = isIP(address);
  if (version === 0 || Number(bits) > (version === 4 ? 32 : 128)) return undefined;
  return { address, bits: Number(bits), family: version === 4 ? 'ipv4' : 'ipv6' };
}
