import type { ChannelOptions } from '@grpc/grpc-js';
import { LONGEST_TIMER } from '@isthmus/runtime';

/** A ping without an answer for this long ends the connection, in milliseconds: Go's default. */
const TIMEOUT_MS = 20_000;

/** @param keepaliveMs how long a connection may be silent before it is pinged, in milliseconds */
export function keepaliveOptions(keepaliveMs: number): ChannelOptions {
  return {
    'grpc.keepalive_time_ms': Math.min(keepaliveMs, LONGEST_TIMER),
    'grpc.keepalive_timeout_ms': TIMEOUT_MS,
  };
}
