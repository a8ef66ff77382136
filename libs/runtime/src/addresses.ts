import { BlockList, isIP, isIPv6, type Socket } from 'node:net';
import type { ProxyHeader } from './proxy-header.ts';

export { isIP, isIPv6 };

/** What a load balancer said ahead of a connection's bytes. */
const headers = new WeakMap<Socket, ProxyHeader>();

/** Notes what the PROXY protocol says of a connection. */
export function noteHeader(socket: Socket, header: ProxyHeader): void {
  headers.set(socket, header);
}

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
  return headers.get(socket)?.source?.address ?? socket.remoteAddress;
}

/** `host:port` of the other side, as `addressOf`; or `uds`. */
export function remoteOf(socket: Socket): string {
  const { address, port } = headers.get(socket)?.source ?? { address: socket.remoteAddress, port: socket.remotePort };
  return address ? `${address}:${port}` : 'uds';
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
