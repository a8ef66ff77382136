import type { Socket } from 'node:net';
import { addressBytes } from '@isthmus/runtime';
import type { Caller } from '@isthmus/tunnel';

/** The signature of version 2, and its command PROXY (haproxy.org/download/3.0/doc/proxy-protocol.txt, section 2.2). */
const HEAD = Buffer.from('\r\n\r\n\0\r\nQUIT\n\x21', 'latin1');

/** Stream sockets over IPv4 and over IPv6; and where nothing is known of both ends. */
const [TCP4, TCP6, UNKNOWN] = [0x11, 0x21, 0];

const MAPPED_IPV4 = Buffer.concat([Buffer.alloc(10), Buffer.from([0xff, 0xff])]);

/** The header of the PROXY protocol that says where a connection came from, and where it came to: `host:port`, or anything else if that is not known. */
export function proxyHeader({ remote, local }: Pick<Caller, 'remote' | 'local'>): Buffer {
  const [source, target] = [placeOf(remote), placeOf(local)];
  const [from, to] = [addressBytes(source?.host ?? ''), addressBytes(target?.host ?? '')];
  if (!from || !to) return Buffer.concat([HEAD, Buffer.from([UNKNOWN, 0, 0])]);
  const [plain, plainTo] = [withoutPrefix(from), withoutPrefix(to)];
  const short = plain.length === 4 && plainTo.length === 4;
  const addresses = short ? [plain, plainTo] : [asIPv6(plain), asIPv6(plainTo)];
  const ports = Buffer.alloc(4);
  ports.writeUInt16BE(source?.port ?? 0, 0);
  ports.writeUInt16BE(target?.port ?? 0, 2);
  const body = Buffer.concat([...addresses, ports]);
  return Buffer.concat([HEAD, Buffer.from([short ? TCP4 : TCP6, 0, body.length]), body]);
}

/** Where a connection came to. */
export function localOf({ localAddress = '', localPort = 0 }: Socket): string {
  return `${localAddress}:${localPort}`;
}

function placeOf(text = ''): { readonly host: string; readonly port: number } | undefined {
  const [, host = '', port] = /^(.*):(\d{1,5})$/.exec(text) ?? [];
  return port === undefined || Number(port) > 65_535 ? undefined : { host, port: Number(port) };
}

/** IPv4 as a socket for both families shows it. */
function withoutPrefix(address: Buffer): Buffer {
  return address.length === 16 && address.subarray(0, 12).equals(MAPPED_IPV4) ? address.subarray(12) : address;
}

function asIPv6(address: Buffer): Buffer {
  return address.length === 16 ? address : Buffer.concat([MAPPED_IPV4, address]);
}
