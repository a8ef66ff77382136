import { Duplex } from 'node:stream';
import type { adminApi } from '@isthmus/proto/admin';
import { randomHex } from '@isthmus/runtime';
import {
  asDialError,
  type Caller,
  type DialRequest,
  DuplexEnd,
  dialLog,
  type Established,
  Tunnel,
  type TunnelOutcome,
} from '@isthmus/tunnel';
import { ADMIN } from '../defaults.ts';
import { destinationOf, type RoutingPart, routingOf } from './explain.ts';
import { type Call, dialMessage, internal, invalid, phasesOf, tenantAsked } from './messages.ts';

export const dial: Call<'dial'> = async (backend, asked, { signal, principal }) => {
  const { recent } = backend;
  const routing = routingOf(backend.routing);
  const firstByteMs = checked('first_byte_timeout_ms', asked.firstByteTimeoutMs);
  const caller = { via: 'admin', identity: 'admin', ...(principal && { principal }) } as const;
  const tenant = tenantAsked(backend, asked.tenant);
  const request = requestOf(routing, { ...asked, tenant }, caller, signal);
  const established = await routing.dial(request).catch(asDialError);
  // The dial's end was emitted before the promise settled.
  const seen = recent.find(request.id, 'gateway');
  const heard = 'end' in established ? await listen(routing, request, established, firstByteMs) : undefined;
  if (!seen?.outcome) throw internal(`dial ${request.id} ended without a report: try again`);
  return {
    dial: dialMessage(seen),
    phases: phasesOf(seen),
    firstByteMs: heard?.ms,
    ended: heard?.ended ?? '',
  };
};

function requestOf(
  { dialTimeout }: Pick<RoutingPart, 'dialTimeout'>,
  asked: adminApi.DialRequest,
  caller: Caller,
  signal: AbortSignal,
): DialRequest {
  const timeout = checked('timeout_ms', asked.timeoutMs) || dialTimeout;
  return {
    id: randomHex(8),
    tenant: asked.tenant,
    destination: destinationOf(asked.destination),
    ...(asked.agentId !== '' && { agent: asked.agentId }),
    deadline: performance.now() + timeout,
    caller,
    trial: true,
    // Its own trace, sampled whatever the sampling rate: the operator who asks wants to see it.
    traceparent: `00-${randomHex(16)}-${randomHex(8)}-01`,
    signal,
    log: dialLog(),
  };
}

/** Waits for the destination's first byte, then closes the tunnel gracefully. It is a normal tunnel, with all its events. */
async function listen({ events }: RoutingPart, request: DialRequest, established: Established, firstByteMs: number) {
  const { promise, resolve } = Promise.withResolvers<number | TunnelOutcome | undefined>();
  const opened = performance.now();
  // A caller that sends nothing, and reads on.
  const stream = new Duplex({
    read() {},
    write(_chunk, _encoding, taken) {
      resolve(performance.now() - opened);
      taken();
    },
    final(done) {
      this.push(null);
      done();
    },
  });
  const tunnel = new Tunnel('gateway', request, new DuplexEnd(stream, false), established, events);
  const { signal } = request;
  const silent = () => resolve(undefined);
  const timer = setTimeout(silent, firstByteMs);
  if (firstByteMs === 0 || signal.aborted) silent();
  else void tunnel.done.then(resolve);
  signal.addEventListener('abort', silent, { once: true });
  const came = await promise;
  clearTimeout(timer);
  signal.removeEventListener('abort', silent);
  // The destination sees the end of the stream, not a reset.
  stream.push(null);
  if (typeof came !== 'object') return { ms: came, ended: '' };
  return { ms: undefined, ended: came.error?.message ?? `closed by the ${came.by}` };
}

function checked(field: string, ms: number): number {
  if (ms >= 0 && ms <= ADMIN.dialMs) return ms;
  throw invalid(`${field} is ${ms}: want 0 to ${ADMIN.dialMs}`);
}
