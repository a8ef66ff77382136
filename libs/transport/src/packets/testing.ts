import { once } from 'node:events';
import { Duplex, PassThrough } from 'node:stream';
import { decodePacket, encodePacket, type Packet } from '@isthmus/proto';
import { DEADLINE_MS } from '@isthmus/runtime/testing';
import {
  type Dial,
  type DialRequest,
  type Established,
  type PlaneEvents,
  planeEvents,
  type TunnelOutcome,
} from '@isthmus/tunnel';
import { endOf } from '@isthmus/tunnel/testing';
import { type PacketChannel, type PacketSink, StatusError } from '@isthmus/wire';
import { PacketClient } from './dial.ts';
import { PacketServer, type ServePacketsOptions } from './serve.ts';

/** One end of a channel within the process, for tests. Every packet passes through the codec. */
class PairedChannel implements PacketChannel {
  readonly remote = 'pair';
  /** Every packet this end has sent. */
  readonly sent: Packet[] = [];
  /** How much may be withheld before the peer can send nothing more, in bytes, and how much is. */
  window = Number.POSITIVE_INFINITY;
  withheld = 0;
  /** While set, this end is full after each packet. */
  full = false;
  peer!: PairedChannel;
  #sink: PacketSink | undefined;
  readonly #inbox: (() => void)[] = [];
  #ended = false;
  #closed = false;

  send(packet: Packet): boolean {
    if (this.#ended || this.#closed) return true;
    this.sent.push(packet);
    const bytes = encodePacket(packet);
    this.peer.#deliver(() => this.peer.#sink?.packet(decodePacket(bytes)));
    return !this.full;
  }

  start(sink: PacketSink): void {
    this.#sink = sink;
    this.#next();
  }

  /** Takes everything that waits. */
  drain(): void {
    this.full = false;
    this.#sink?.drain();
  }

  /** Takes one of the waiting packets. */
  drainOne(): void {
    this.full = true;
    this.#sink?.drain();
  }

  withhold(bytes: number): void {
    this.withheld += bytes;
  }

  release(bytes: number): void {
    this.withheld -= bytes;
    this.#next();
  }

  get heldUp(): boolean {
    return this.withheld >= this.window;
  }

  get over(): boolean {
    return this.#closed;
  }

  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.peer.#deliver(() => {
      this.peer.end();
      this.peer.#close();
    });
  }

  destroy(reason: Error): void {
    this.#close(new StatusError('Canceled', reason.message, { cause: reason }));
    this.peer.#close(new StatusError('Canceled', reason.message));
  }

  #deliver(event: () => void): void {
    this.#inbox.push(event);
    this.#next();
  }

  #next(): void {
    setImmediate(() => {
      while (this.#sink && !this.heldUp && this.#inbox.length > 0) this.#inbox.shift()?.();
    });
  }

  #close(error?: StatusError): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#sink?.closed(error);
  }
}

export function channelPair(): [PairedChannel, PairedChannel] {
  const a = new PairedChannel();
  const b = new PairedChannel();
  a.peer = b;
  b.peer = a;
  return [a, b];
}

/** A destination in memory: what the tunnel writes comes out of `far`, and vice versa. */
export function destination(): { near: Duplex; far: Duplex } {
  const up = new PassThrough();
  const down = new PassThrough();
  const near = Duplex.from({ writable: up, readable: down });
  const far = Duplex.from({ writable: down, readable: up });
  near.on('error', () => {});
  far.on('error', () => {});
  far.on('end', () => far.end());
  return { near, far };
}

export function established(stream: Duplex): Established {
  const end = endOf(stream);
  return { end, agentId: 'a', sessionId: 's', hubId: 'h', timing: {} };
}

export function request(over: Partial<DialRequest> = {}): DialRequest {
  return {
    id: '0123456789abcdef',
    tenant: 'default',
    destination: { host: '::1', port: 443 },
    deadline: performance.now() + DEADLINE_MS,
    signal: new AbortController().signal,
    ...over,
  };
}

interface Served {
  served: PacketServer;
  /** The side that dials. */
  hub: PairedChannel;
  /** The side that serves. */
  agent: PairedChannel;
  requests: DialRequest[];
  fars: Duplex[];
  outcomes: TunnelOutcome[];
}

/** The serving half at one end of a channel; the test speaks raw packets at the other. */
export function serve(options: Partial<ServePacketsOptions> = {}): Served {
  const setup = half(options);
  setup.hub.start({ packet() {}, drain() {}, closed() {} });
  return setup;
}

function half({ dial, ...options }: Partial<ServePacketsOptions>): Served {
  const [hub, agent] = channelPair();
  const events = planeEvents();
  const requests: DialRequest[] = [];
  const fars: Duplex[] = [];
  const outcomes: TunnelOutcome[] = [];
  events.on('tunnel:close', (_tunnel, outcome) => outcomes.push(outcome));
  const serveDial: Dial = async (dialled) => {
    requests.push(dialled);
    if (dial) return dial(dialled);
    const { near, far } = destination();
    fars.push(far);
    return established(near);
  };
  const served = new PacketServer(agent, { dial: serveDial, tenant: 'default', events, ...options });
  return { served, hub, agent, requests, fars, outcomes };
}

export function dialThrough(hub: PairedChannel, events = planeEvents()): PacketClient {
  return new PacketClient(hub, { agentId: 'a1', sessionId: 's1', hubId: 'h1', events });
}

/** Both halves of the protocol over one channel. */
export function plane(
  options: Partial<ServePacketsOptions> = {},
  events?: PlaneEvents,
): Served & { client: PacketClient } {
  const setup = half(options);
  return { ...setup, client: dialThrough(setup.hub, events) };
}

/** A dial that is never answered. */
export const silent: Dial = ({ signal }) =>
  new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason), { once: true }));

export const types = (channel: PairedChannel) => channel.sent.map(({ type }) => type);

export async function collect(stream: Duplex): Promise<string> {
  const chunks: Buffer[] = [];
  stream.on('data', (chunk: Buffer) => chunks.push(chunk));
  await once(stream, 'end');
  return Buffer.concat(chunks).toString();
}
