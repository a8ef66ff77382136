import type { Socket } from 'node:net';

/**
 * Go's: the kernel asks the peer once a connection has been idle for 15 s, and every 15 s from then on. This is what keeps a tunnel that
 * says nothing in the tables of a NAT, and what ends one whose peer lost its power. In milliseconds.
 */
const IDLE_MS = 15_000;
const INTERVAL_MS = 15_000;

/** So many questions without an answer end the connection, after 150 s in all. A virtual machine may be frozen for a minute. */
const PROBES = 9;

/** Node 26 passes all of these on. Older ones take only the first two, then ask ten times, a second apart: they end it after 25 s. */
type SetKeepAlive = (enable: boolean, idleMs: number, intervalMs: number, probes: number) => void;

/** Lets the kernel watch a connection's peer. For every TCP socket that the plane opens or accepts; a unix socket needs none. */
export function keptAlive<T extends Socket>(socket: T): T {
  (socket.setKeepAlive as SetKeepAlive)(true, IDLE_MS, INTERVAL_MS, PROBES);
  return socket;
}
