import type { ChannelOptions } from '@grpc/grpc-js';

/** A ping without an answer for this long ends the connection, in milliseconds: Go's default. */
const TIMEOUT_MS = 20_000;

/** A timer's longest time, in milliseconds; a longer keepalive is none. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** @param keepaliveMs how long a connection may be silent before it is pinged, in milliseconds */
export function keepalive(keepaliveMs: number): ChannelOptions {
  return {
    'grpc.keepalive_time_ms': Math.min(keepaliveMs, MAX_TIMER_MS),
    'grpc.keepalive_timeout_ms': TIMEOUT_MS,
  };
}
