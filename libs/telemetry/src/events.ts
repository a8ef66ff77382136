import type { PlaneEventMap, PlaneEvents } from '@isthmus/tunnel';
import type { SpanContext } from '@opentelemetry/api';

/** Listeners by event. */
export type Subscriptions = { readonly [Name in keyof PlaneEventMap]?: (...args: PlaneEventMap[Name]) => void };

/** Adds listeners for events. @returns a function that removes them */
export function subscribe(events: PlaneEvents, subscriptions: Subscriptions): () => void {
  // `Subscriptions` gives each listener the arguments of its event; the type of Object.entries() loses that.
  const entries = Object.entries(subscriptions) as [keyof PlaneEventMap, () => void][];
  for (const [name, listener] of entries) events.on(name, listener);
  return () => {
    for (const [name, listener] of entries) events.off(name, listener);
  };
}

/** Upstream's `direction` label of an agent's `server_connection_failure_count`. */
export const SERVER_DIRECTIONS: Readonly<Record<PlaneEventMap['server:failure'][1], string>> = {
  connecting: 'to_server',
  connected: 'from_server',
};

// W3C Trace Context, section 3.2: version ff and all-zero ids are invalid.
const TRACEPARENT = /^(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;

/** Parses a `traceparent`. Returns undefined for an invalid one, which starts a new trace. A later version may be longer. */
export function parseTraceparent(text: string): SpanContext | undefined {
  const [, version, traceId, spanId, flags, rest] = TRACEPARENT.exec(text) ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined;
  if (version === '00' && rest !== undefined) return undefined;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true };
}
