import { decodePacket, encodePacket, type Packet } from '@isthmus/proto';
import { ChannelError, type PacketChannel, type PacketSink } from '@isthmus/wire';

/** One end of a channel within the process, for tests. Every packet passes through the codec. */
export class PairedChannel implements PacketChannel {
  readonly remote = 'pair';
  /** Every packet this end has sent. */
  readonly sent: Packet[] = [];
  paused = false;
  /** How much may be held before the peer can send nothing more, in bytes, and how much is. */
  window = Number.POSITIVE_INFINITY;
  held = 0;
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

  pause(): void {
    this.paused = true;
  }

  resume(): void {
    this.paused = false;
    this.#next();
  }

  hold(bytes: number): void {
    this.held += bytes;
  }

  free(bytes: number): void {
    this.held -= bytes;
    this.#next();
  }

  get heldUp(): boolean {
    return this.held >= this.window;
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
    this.#close(new ChannelError('Canceled', reason.message, { cause: reason }));
    this.peer.#close(new ChannelError('Canceled', reason.message));
  }

  #deliver(event: () => void): void {
    this.#inbox.push(event);
    this.#next();
  }

  #next(): void {
    setImmediate(() => {
      while (this.#sink && !this.paused && !this.heldUp && this.#inbox.length > 0) this.#inbox.shift()?.();
    });
  }

  #close(error?: ChannelError): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#sink?.close(error);
  }
}

export function channelPair(): [PairedChannel, PairedChannel] {
  const a = new PairedChannel();
  const b = new PairedChannel();
  a.peer = b;
  b.peer = a;
  return [a, b];
}
