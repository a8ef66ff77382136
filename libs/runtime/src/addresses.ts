import { readFileSync } from 'node:fs';
import { BlockList, isIP, isIPv6, type Socket } from 'node:net';
import { endianness, networkInterfaces } from 'node:os';
import { guarding } from './async.ts';
import { RUNTIME } from './defaults.ts';
import { begins } from './sockets.ts';

export { isIP, isIPv6 };

/** What a load balancer said ahead of a connection's bytes. */
const headers = new WeakMap<Socket, ProxyHeader>();

/** Call with a TLS socket and the socket below it, which the header came on. */
export function passHeader(from: Socket, to: Socket): void {
  const header = headers.get(from);
  if (header) headers.set(to, header);
}

/** How many bytes have come from the peer itself, without a load balancer's header. */
export function bytesFrom(socket: Socket): number {
  return socket.bytesRead - (headers.get(socket)?.length ?? 0);
}

/** The address of the other side; behind a load balancer with the PROXY protocol, the true one. Undefined on a unix socket. */
export function addressOf(socket: Socket): string | undefined {
  return unmapped(headers.get(socket)?.source?.address ?? socket.remoteAddress);
}

/** An IPv4 address as such: a dual-stack listener sees `::ffff:10.0.0.1`. */
function unmapped<T extends string | undefined>(address: T): T | string {
  return address?.startsWith('::ffff:') && address.includes('.') ? address.slice('::ffff:'.length) : address;
}

/** `host:port` of the other side, as `addressOf`; or `uds`. */
export function remoteOf(socket: Socket): string {
  const source = headers.get(socket)?.source;
  const address = source?.address ?? socket.remoteAddress;
  return address ? `${unmapped(address)}:${source?.port ?? socket.remotePort}` : 'uds';
}

/** The addresses that this machine has now. */
export function machineAddresses(): string[] {
  return Object.values(networkInterfaces()).flatMap((all) => all?.map(({ address }) => address) ?? []);
}

/** How the kernel writes that a socket listens (include/net/tcp_states.h). */
const LISTENS = '0A';

/** How many sockets of this network namespace listen at an address: those of several processes that share it too. 0 where there is no /proc. */
export function listeningAt({ host, port }: { readonly host: string; readonly port: number }): number {
  const place = `${kernelText(host)}:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  try {
    const lines = readFileSync(isIP(host) === 6 ? '/proc/net/tcp6' : '/proc/net/tcp', 'latin1').split('\n');
    return lines.filter((line) => {
      const [, local, , state] = line.trim().split(/\s+/);
      return local === place && state === LISTENS;
    }).length;
  } catch {
    return 0;
  }
}

/** An address as /proc/net/tcp has it: words of 32 bits in the order of the machine. */
function kernelText(host: string): string {
  const bytes = Buffer.from(addressBytes(host) ?? []);
  return (endianness() === 'LE' ? bytes.swap32() : bytes).toString('hex').toUpperCase();
}

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8, 'ipv4');
loopback.addAddress('::1', 'ipv6');

/** Whether only this machine can reach a bound address. The empty address means all addresses. */
export function isLoopback(host: string): boolean {
  // Not isIPv6: its first call takes 4 ms of a start, and isIP needs it only for what is no IPv4 address.
  const family = isIP(host);
  if (family === 0) return host.toLowerCase() === 'localhost';
  return loopback.check(host, family === 6 ? 'ipv6' : 'ipv4');
}

/** The bytes of an address, 4 or 16. Undefined for what is none, or has a zone. */
export function addressBytes(text: string): Buffer | undefined {
  const family = isIP(text);
  if (family === 0 || text.includes('%')) return undefined;
  if (family === 4) return Buffer.from(text.split('.').map(Number));
  const [head = '', tail] = text.split('::');
  const groups = (half: string) =>
    half
      .split(':')
      .filter((group) => group !== '')
      .flatMap((group) => {
        if (group.includes('.')) return group.split('.').map(Number);
        const value = Number.parseInt(group, 16);
        return [value >> 8, value & 0xff];
      });
  const [front, back] = [groups(head), groups(tail ?? '')];
  const zeros = tail === undefined ? [] : new Array<number>(16 - front.length - back.length).fill(0);
  return Buffer.from([...front, ...zeros, ...back]);
}

/** Returns the source of an address, which limits count. */
export function sourceOf(address: string): string {
  const plain = unmapped(address).replace(/%.*$/s, '');
  if (isIP(plain) !== 6) return plain;
  const bytes = addressBytes(plain) as Buffer;
  const groups = Array.from({ length: RUNTIME.sourceIpv6Groups }, (_, group) =>
    bytes.readUInt16BE(2 * group).toString(16),
  );
  return `${groups.join(':')}::/64`;
}

/** Load balancers that say where their connections come from. */
interface ProxiedOptions {
  /** Only connections from these networks have the header, and must have it. */
  readonly networks: BlockList;
  /** Keeps the connections whose header has not come. Who ends them is told nothing. */
  readonly waiting: Set<Socket>;
  /** Takes a connection whose first bytes are those of its true source. It is paused if it had a header. */
  readonly take: (socket: Socket) => void;
  /** Called for each connection that is ended because its header does not come, or is none. */
  readonly refused: (socket: Socket, error: Error) => void;
}

/** Reads the header of the PROXY protocol ahead of everything else, TLS included. `remoteOf` then tells the true source. */
export function proxied({ networks, waiting, take, refused }: ProxiedOptions): (socket: Socket) => void {
  return (socket) => {
    const from = unmapped(socket.remoteAddress ?? '');
    if (!networks.check(from, isIPv6(from) ? 'ipv6' : 'ipv4')) return take(socket);
    let seen: Buffer | undefined;
    waiting.add(socket);
    const settle = () => {
      waiting.delete(socket);
      clearTimeout(timer);
      socket.off('data', read).off('end', cut).off('close', settle);
    };
    const refuse = (error: Error) => {
      settle();
      refused(socket, error);
      socket.destroy();
    };
    const guarded = guarding(refuse);
    const read = guarded((chunk: Buffer) => {
      seen = seen ? Buffer.concat([seen, chunk]) : chunk;
      const header = readProxyHeader(seen);
      if (!header) return;
      settle();
      socket.pause();
      headers.set(socket, header);
      if (seen.length > header.length) socket.unshift(seen.subarray(header.length));
      take(socket);
    });
    // A health check that connects and closes is no error.
    const cut = guarded(() => {
      if (seen) throw new Error('it ended in the middle of its header of the PROXY protocol');
      settle();
      socket.destroy();
    });
    const late = guarded(() => {
      throw new Error(`no header of the PROXY protocol within ${RUNTIME.proxyHeaderMs / 1000} s`);
    });
    const timer = setTimeout(late, RUNTIME.proxyHeaderMs);
    socket
      .on('error', () => {})
      .on('data', read)
      .on('end', cut)
      .on('close', settle);
    if (waiting.size > RUNTIME.proxyHeaderConnections)
      refuse(
        new Error(`${RUNTIME.proxyHeaderConnections} connections wait for a header of the PROXY protocol already`),
      );
  };
}

/*
 * The PROXY protocol, versions 1 and 2: what a load balancer sends ahead of a connection's bytes to say where it comes from
 * (haproxy.org/download/3.0/doc/proxy-protocol.txt).
 */

/** The longest header of version 1, in bytes (section 2.1). */
const LONGEST_TEXT = 107;

/** The first bytes of version 2 (section 2.2). No other protocol begins so. */
const SIGNATURE = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');

/** The signature; version and command; family and transport; the length of the rest. */
const FIXED = SIGNATURE.length + 4;

const TEXT = Buffer.from('PROXY ');
const TEXT_LINE =
  /^PROXY (?:UNKNOWN(?: [\x20-\x7e]*)?|TCP([46]) ([\dA-Fa-f.:]+) ([\dA-Fa-f.:]+) (0|[1-9]\d{0,4}) (0|[1-9]\d{0,4}))$/;

/** Address families of version 2, and the bytes of both addresses and ports. */
const FAMILIES: Readonly<Record<number, { readonly address: number; readonly both: number }>> = {
  1: { address: 4, both: 12 },
  2: { address: 16, both: 36 },
  // Unix sockets, whose paths say nothing here.
  3: { address: 0, both: 216 },
};

/** Where a connection comes from. */
interface Source {
  readonly address: string;
  readonly port: number;
}

interface ProxyHeader {
  /** Unset if the load balancer speaks for itself, as in its health checks, or does not know. */
  readonly source: Source | undefined;
  /** In bytes. */
  readonly length: number;
}

/**
 * Reads the header at the beginning of a connection.
 * @returns undefined while more bytes are needed
 * @throws Error for anything else
 */
export function readProxyHeader(bytes: Buffer): ProxyHeader | undefined {
  if (begins(bytes, SIGNATURE)) return bytes.length < FIXED ? undefined : readBinary(bytes);
  if (begins(bytes, TEXT)) return readText(bytes);
  throw new Error(
    'it does not begin with a header of the PROXY protocol, which --proxy-protocol-networks requires of it',
  );
}

function readText(bytes: Buffer): ProxyHeader | undefined {
  const head = bytes.subarray(0, LONGEST_TEXT);
  const end = head.indexOf('\r\n');
  if (end < 0) {
    if (head.length < LONGEST_TEXT) return undefined;
    throw malformed(`no end within ${LONGEST_TEXT} bytes`);
  }
  const found = TEXT_LINE.exec(head.toString('latin1', 0, end));
  if (!found) throw malformed('not a line of version 1');
  const [, family, address = '', destination = '', port, destinationPort] = found;
  const length = end + 2;
  if (family === undefined) return { source: undefined, length };
  if ([address, destination].some((each) => isIP(each) !== Number(family)))
    throw malformed(`no address of TCP${family}`);
  if (Math.max(Number(port), Number(destinationPort)) > 65_535) throw malformed('no port');
  return { source: { address, port: Number(port) }, length };
}

function readBinary(bytes: Buffer): ProxyHeader | undefined {
  const [version, transport] = [bytes.readUInt8(SIGNATURE.length), bytes.readUInt8(SIGNATURE.length + 1)];
  const rest = bytes.readUInt16BE(SIGNATURE.length + 2);
  const [local, proxied] = [0x20, 0x21];
  if (version !== local && version !== proxied) throw malformed(`version and command 0x${version.toString(16)}`);
  if (rest > RUNTIME.proxyHeaderBytes)
    throw malformed(`${rest} bytes of addresses and fields: at most ${RUNTIME.proxyHeaderBytes} are read`);
  const length = FIXED + rest;
  if (bytes.length < length) return undefined;
  if (version === local || transport >> 4 === 0) return { source: undefined, length };
  const family = FAMILIES[transport >> 4];
  if (!family || (transport & 0xf) !== 1) throw malformed(`family and transport 0x${transport.toString(16)}`);
  if (rest < family.both) throw malformed(`${rest} bytes of addresses instead of ${family.both}`);
  if (family.address === 0) return { source: undefined, length };
  const address = textOf(bytes.subarray(FIXED, FIXED + family.address));
  return { source: { address, port: bytes.readUInt16BE(FIXED + 2 * family.address) }, length };
}

const MAPPED = '00000000000000000000ffff';

function textOf(address: Buffer): string {
  if (address.length === 4) return address.join('.');
  if (address.toString('hex', 0, 12) === MAPPED) return address.subarray(12).join('.');
  const groups = Array.from({ length: 8 }, (_, group) => address.readUInt16BE(2 * group).toString(16));
  return new URL(`http://[${groups.join(':')}]`).hostname.slice(1, -1);
}

function malformed(what: string): Error {
  return new Error(`its header of the PROXY protocol is malformed: ${what}`);
}

/** Returns the path in `unix:/path`, or undefined for any other address. */
export function socketPathOf(address: string): string | undefined {
  return /^unix:(?:\/\/(?=\/))?(\/.+)$/.exec(address)?.[1];
}
