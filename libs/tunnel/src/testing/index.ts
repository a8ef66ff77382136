import { Duplex, PassThrough } from 'node:stream';
import { destroyOnceRead } from '@isthmus/runtime';
import { Deadlines } from '../deadlines.ts';
import type { Dial, DialRequest, Established } from '../dial.ts';
import { type DestinationEnd, DuplexEnd, type EndUser, type TunnelEnd } from '../end.ts';
import { planeEvents, type TunnelRole } from '../events.ts';
import type { ByteMeter } from '../limits/byte-meter.ts';
import type { DialTracer, Observation } from '../observe.ts';
import { pipeline, type Stage } from '../pipeline.ts';
import { type Carrier, type Loss, type Mark, readMark, type StreamUser } from '../resume/carrier.ts';
import { Tunnel } from '../tunnel.ts';

export { AgentTunnel } from '../resume/agent-tunnels.ts';
export { GatewayHalf } from '../resume/gateway-tunnels.ts';
export { halvesOf } from '../resume/halves.ts';

export const request: DialRequest = {
  id: '00000000000000aa',
  tenant: 'default',
  destination: { host: 'x', port: 1 },
  deadline: 1e12,
  signal: new AbortController().signal,
};

export function established(): Established {
  return {
    end: endOf(new PassThrough()),
    agentId: 'a',
    sessionId: 's',
    hubId: 'h',
    timing: {},
  };
}

/** An end at a stream. Its failures need no listener. */
export function endOf<Stream extends Duplex>(stream: Stream): DuplexEnd<Stream> {
  return new DuplexEnd(stream.on('error', () => {}));
}

/** A Dial behind some stages. */
export function behind(stages: readonly Stage[], open: Dial): Dial {
  return pipeline({ role: 'gateway', stages, open, observation: unobserved() });
}

const NO_SPAN = { traceparent: undefined, end() {} };

/** Records nothing. */
export const noTracer: DialTracer = { start: () => NO_SPAN, attempt: () => NO_SPAN, step() {} };

export const unobserved = (): Observation & { readonly tracer: DialTracer } => ({
  events: planeEvents(),
  tracer: noTracer,
});

interface SaidOfHalf {
  readonly detached?: boolean;
  readonly progress?: number;
  /** Bytes that wait there. */
  readonly waiting?: number;
}

/** A stream that stands for a tunnel's half. */
export class StreamAsHalf extends DuplexEnd {
  readonly #of: SaidOfHalf;

  /** @param of what the half says of itself; live */
  constructor(stream: Duplex, of: SaidOfHalf, halfOpen = true) {
    super(stream, halfOpen);
    this.#of = of;
    Object.defineProperties(this, {
      detached: { get: () => of.detached ?? false },
      progress: { get: () => of.progress },
    });
  }

  override get writableLength(): number {
    return this.#of.waiting ?? super.writableLength;
  }
}

/** The same bytes as a Duplex, for who reads and writes an end without joining it. */
export function streamOf(end: TunnelEnd): Duplex {
  const { stream } = end as Partial<DuplexEnd>;
  return stream instanceof Duplex ? stream : streamed(end);
}

const streams = new WeakMap<TunnelEnd, Duplex>();

function streamed(end: TunnelEnd): Duplex {
  const stream = streams.get(end) ?? new EndStream(end);
  streams.set(end, stream);
  return stream;
}

class EndStream extends Duplex {
  readonly #end: TunnelEnd;
  #wrote: (() => void) | undefined;

  constructor(end: TunnelEnd) {
    // What nobody reads stays in the end.
    super({ readableHighWaterMark: 1 });
    this.#end = end;
    this.on('error', () => {});
    let ended = false;
    const user: EndUser = {
      onData: (bytes) => {
        if (!this.push(bytes)) end.pause();
      },
      onDrain: () => this.#settle(),
      onEnd: () => {
        ended = true;
        this.push(null);
      },
      onClose: (failure) => {
        this.#settle();
        if (failure) destroyOnceRead(this, failure);
        else if (ended && !this.readableEnded) this.once('end', () => this.destroy());
        else this.destroy();
      },
    };
    end.use(user, 'acme');
    end.pause();
  }

  override _read(): void {
    this.#end.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#wrote = done;
    if (this.#end.write(chunk)) this.#settle();
  }

  override _final(done: () => void): void {
    this.#end.finish(false);
    this.#end.whenFinished(done);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#end.abort(error ?? new Error('it went away'));
    done(error);
  }

  #settle(): void {
    const wrote = this.#wrote;
    this.#wrote = undefined;
    wrote?.();
  }
}

/** A tunnel of a hub with a sweep of its own. */
export function joined(
  caller: TunnelEnd,
  destination: DestinationEnd,
  meter?: ByteMeter,
  role: TunnelRole = 'gateway',
): Tunnel {
  const carried = { ...established(), end: destination, ...(meter && { meter }) };
  return new Tunnel(role, request, caller, carried, planeEvents(), undefined, new Deadlines());
}

/** A carrier that notes what it is told, and its stream. */
export class RecordingCarrier implements Carrier {
  readonly stream = this;
  readonly told: string[] = [];
  readonly marks: Mark[] = [];
  pending = 0;
  /** The half that has it, until it drops it. */
  half: StreamUser | undefined;
  #loss: Loss | undefined;
  /** Bytes that were read since the window was enlarged. */
  #read = 0;

  deliverTo(half: StreamUser): void {
    this.half = half;
  }

  drop(reason?: Error): void {
    this.half = undefined;
    this.told.push(reason ? `abort ${reason.message}` : 'drop');
  }

  /** It is lost. @param ends whether the tunnel ends with it */
  lose(reason: Error, ends = false): void {
    const { half } = this;
    this.half = undefined;
    this.#loss = { reason, ends };
    half?.onClose(0, undefined);
  }

  closed(): Loss | undefined {
    return this.#loss;
  }

  write(bytes: Uint8Array): void {
    this.told.push(`data ${Buffer.from(bytes)}`);
  }

  awaitTurn(next: { writeMore(): void }): void {
    next.writeMore();
  }

  consume(bytes: number): boolean {
    this.#read = this.#read + bytes < 64 * 1024 ? this.#read + bytes : 0;
    return this.#read === 0;
  }

  mark(payload: Uint8Array): void {
    this.marks.push(readMark(payload) as Mark);
  }

  endLate(last?: Uint8Array): void {
    if (last) this.mark(last);
    this.told.push('end');
  }
}
