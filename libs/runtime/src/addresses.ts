import { BlockList, isIP, isIPv6, type Socket } from 'node:net';

export { isIP, isIPv6 };

/** `host:port` of the other side, or `uds`. */
export function remoteOf(socket: Socket): string {
  return socket.remoteAddress ? `${socket.remoteAddress}:${socket.remotePort}` : 'uds';
}

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8, 'ipv4');
loopback.addAddress('::1', 'ipv6');

/** Whether only this machine can reach a bound address. The empty address means all addresses. */
export function isLoopback(host: string): boolean {
  if (isIP(host) === 0) return host.toLowerCase() === 'localhost';
  return loopback.check(host, isIPv6(host) ? 'ipv6' : 'ipv4');
}
