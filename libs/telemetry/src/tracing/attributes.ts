import type { Attributes, Span } from '@opentelemetry/api';

/** Every attribute of a span or an event, as docs/TRACES.md lists them. Ours begin with `isthmus.`. */
export const ATTRIBUTES = [
  'client.address',
  'client.port',
  'dns.question.name',
  'error.type',
  'network.peer.address',
  'network.peer.port',
  'network.transport',
  'network.type',
  'server.address',
  'server.port',
  'isthmus.agent.id',
  'isthmus.attempt.kind',
  'isthmus.attempt.ms',
  'isthmus.attempt.number',
  'isthmus.attempt.outcome',
  'isthmus.caller.identity',
  'isthmus.caller.via',
  'isthmus.dial.agent_ms',
  'isthmus.dial.attempts',
  'isthmus.dial.connect_ms',
  'isthmus.dial.dns_ms',
  'isthmus.dial.failure',
  'isthmus.dial.hub_ms',
  'isthmus.dial.id',
  'isthmus.dial.kept',
  'isthmus.dial.parked_ms',
  'isthmus.hub.id',
  'isthmus.session.id',
  'isthmus.tenant',
  'isthmus.tunnel.closed_by',
  'isthmus.tunnel.down_bytes',
  'isthmus.tunnel.moves',
  'isthmus.tunnel.up_bytes',
] as const;

export type AttributeName = (typeof ATTRIBUTES)[number];

/** Sets one attribute, to avoid creating an object with all attributes for every span. */
export function put(span: Span, name: AttributeName, value: string | number | undefined): void {
  if (value !== undefined) span.setAttribute(name, value);
}

/** Returns the values that are defined. */
export function known(
  values: {
    readonly [Name in AttributeName]?: string | number | undefined;
  },
): Attributes {
  const attributes: Attributes = {};
  for (const [name, value] of Object.entries(values)) if (value !== undefined) attributes[name] = value;
  return attributes;
}
