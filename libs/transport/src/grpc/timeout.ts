import { LONGEST_TIMER } from '@isthmus/runtime';

/** Milliseconds in gRPC's units of time. */
const UNITS: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1_000, m: 1, u: 1e-3, n: 1e-6 };

/**
 * Reads `grpc-timeout` (gRPC over HTTP/2, "Timeout"). Returns milliseconds; NaN if it is malformed; undefined without one, or if it is
 * too long to matter.
 */
export function readTimeout(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const [, digits, unit] = /^(\d{1,8})([HMSmun])$/.exec(text) ?? [];
  const ms = Number(digits) * (UNITS[unit ?? ''] ?? Number.NaN);
  return ms > LONGEST_TIMER ? undefined : ms;
}
