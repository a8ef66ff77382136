import { type Duplex, PassThrough } from 'node:stream';
import { Deadlines } from '../deadlines.ts';
import type { Dial, DialRequest, Established, TunnelEnd } from '../dial.ts';
import { UsedStream } from '../end.ts';
import { planeEvents, type TunnelRole } from '../events.ts';
import type { ByteMeter } from '../limits/byte-meter.ts';
import { noTracer, type Observation } from '../observe.ts';
import { pipeline, type Stage } from '../pipeline.ts';
import type { Carrier, CarrierUser, Mark } from '../resume/carrier.ts';
import { Tunnel } from '../tunnel.ts';

export const request: DialRequest = {
  id: '00000000000000aa',
  tenant: 'default',
  destination: { host: 'x', port: 1 },
  deadline: 1e12,
  signal: new AbortController().signal,
};

export function established(): Established {
  const stream = new PassThrough();
  return {
    end: { stream, halfOpen: true, abort: () => void stream.destroy() },
    agentId: 'a',
    sessionId: 's',
    hubId: 'h',
    timing: {},
  };
}

/** A Dial behind some stages. */
export function behind(stages: readonly Stage[], open: Dial): Dial {
  return pipeline({ role: 'gateway', stages, open, observation: unobserved() });
}

export const unobserved = (): Observation => ({ events: planeEvents(), tracer: noTracer });

interface SaidOfHalf {
  readonly detached?: boolean;
  readonly progress?: number;
  /** Bytes that wait there. */
  readonly waiting?: number;
}

/** A stream that stands for a tunnel's half. */
export class StreamAsHalf extends UsedStream {
  readonly #stream: Duplex;
  readonly #of: SaidOfHalf;

  /** @param of what the half says of itself; live */
  constructor(stream: Duplex, of: SaidOfHalf) {
    super(stream, {});
    this.#stream = stream;
    this.#of = of;
  }

  override get detached(): boolean {
    return this.#of.detached ?? false;
  }

  override get progress(): number {
    return this.#of.progress ?? 0;
  }

  override get writableLength(): number {
    return this.#of.waiting ?? super.writableLength;
  }

  whenClosed(then: () => void): void {
    this.#stream.once('close', then);
  }
}

/** A tunnel of a hub with a sweep of its own. */
export function joined(
  caller: TunnelEnd,
  destination: TunnelEnd,
  meter?: ByteMeter,
  role: TunnelRole = 'gateway',
): Tunnel {
  const carried = { ...established(), end: destination, ...(meter && { meter }) };
  return new Tunnel(role, request, caller, carried, planeEvents(), undefined, new Deadlines());
}

/** A carrier that notes what it is told. */
export class RecordingCarrier implements Carrier {
  readonly told: string[] = [];
  readonly marks: Mark[] = [];
  drained = true;
  user: CarrierUser | undefined;
  /** Bytes that were read since the window was enlarged. */
  #read = 0;

  deliverTo(user: CarrierUser): void {
    this.user = user;
  }

  data(bytes: Uint8Array): void {
    this.told.push(`data ${Buffer.from(bytes)}`);
  }

  awaitTurn(next: { writeMore(): void }): void {
    next.writeMore();
  }

  consume(bytes: number): boolean {
    this.#read = this.#read + bytes < 64 * 1024 ? this.#read + bytes : 0;
    return this.#read === 0;
  }

  mark(mark: Mark): void {
    this.marks.push(mark);
  }

  end(last?: Mark): void {
    if (last) this.marks.push(last);
    this.told.push('end');
  }

  drop(): void {
    this.told.push('drop');
  }

  abort({ message }: Error): void {
    this.told.push(`abort ${message}`);
  }
}
