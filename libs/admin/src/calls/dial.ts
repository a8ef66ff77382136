import { Duplex } from 'node:stream';
import type { adminApi } from '@isthmus/proto/admin';
import { onceClosed, randomHex } from '@isthmus/runtime';
import {
  type AnyPrincipal,
  asDialError,
  type Caller,
  type DialRequest,
  type DialSignal,
  DuplexEnd,
  dialLog,
  type Established,
  Tunnel,
} from '@isthmus/tunnel';
import type { AdminBackend } from '../backend.ts';
import { ADMIN } from '../defaults.ts';
import { destinationOf, type RoutingPart, routingOf } from './explain.ts';
import { dialMessage, internal, invalid, phasesOf, type Rpc, tenantAsked } from './messages.ts';

interface Heard {
  /** Time from the call to the first byte; undefined if none arrived. */
  readonly ms: number | undefined;
  /** Whether the tunnel ended during the wait. */
  readonly ended: boolean;
}

/** A caller that sends nothing and only waits for the destination's first byte. */
class FirstByte {
  readonly end: DuplexEnd;
  #heard = () => {};

  constructor() {
    const heard = () => this.#heard();
    const stream = new Duplex({
      read() {},
      write(_chunk, _encoding, taken) {
        heard();
        taken();
      },
    });
    this.end = new DuplexEnd(stream, false);
  }

  /** Waits for at most `ms` milliseconds; 0 does not wait. */
  async wait(ms: number, signal: DialSignal): Promise<Heard> {
    if (ms === 0 || signal.aborted) return { ms: undefined, ended: false };
    const start = performance.now();
    return new Promise((resolve) => {
      const settle = (heard: Heard) => {
        clearTimeout(timer);
        signal.removeEventListener('abort', silent);
        this.#heard = () => {};
        resolve(heard);
      };
      const silent = () => settle({ ms: undefined, ended: false });
      const timer = setTimeout(silent, ms);
      signal.addEventListener('abort', silent, { once: true });
      this.#heard = () => settle({ ms: performance.now() - start, ended: false });
      const ended = () => settle({ ms: undefined, ended: true });
      onceClosed(this.end.stream.once('finish', ended), ended);
    });
  }

  /** Closes gracefully: the destination sees the end of the stream, not a reset. */
  hangUp(): void {
    this.end.stream.push(null);
  }
}

/** @param operator set for an operator of one tenant alone */
export function dialRpc(backend: AdminBackend, operator?: AnyPrincipal): Rpc<'dial'> {
  const { routing: part, recent } = backend;
  return {
    async dial(asked, { signal }) {
      const routing = routingOf(part);
      const firstByteMs = checked('first_byte_timeout_ms', asked.firstByteTimeoutMs);
      const caller = { via: 'admin', identity: 'admin', ...(operator && { principal: operator }) } as const;
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
    },
  };
}

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
async function listen(routing: RoutingPart, request: DialRequest, established: Established, firstByteMs: number) {
  const caller = new FirstByte();
  const tunnel = new Tunnel('gateway', request, caller.end, established, routing.events);
  const heard = await caller.wait(firstByteMs, request.signal);
  caller.hangUp();
  const gone = firstByteMs > 0 && heard.ended ? await tunnel.done : undefined;
  return { ms: heard.ms, ended: gone ? (gone.error?.message ?? `closed by the ${gone.by}`) : '' };
}

function checked(field: string, ms: number): number {
  if (ms >= 0 && ms <= ADMIN.dialMs) return ms;
  throw invalid(`${field} is ${ms}: want 0 to ${ADMIN.dialMs}`);
}
