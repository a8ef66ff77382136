import type { Packet } from '@isthmus/proto';
import { OpenTable } from '@isthmus/runtime';
import type { ChannelError, PacketChannel } from '@isthmus/wire';
import type { Queue } from './backlog.ts';
import type { PacketSide } from './closing.ts';
import { Outbox } from './outbox.ts';
import { closePacket, PacketStream } from './stream.ts';

/** How many closed connections are remembered, so that late packets for them are not answered. */
const MAX_REMEMBERED = 4_096;

export type DialPacket = Extract<Packet, { type: 'DIAL_REQ' | 'DIAL_RSP' | 'DIAL_CLS' | 'DRAIN' }>;

export interface PacketMuxOptions {
  readonly side: PacketSide;
  /** See `PacketStreamOptions`. */
  readonly maxData?: number;
  /** Makes the queue of a new tunnel. Its limits may end the tunnel. */
  readonly queue: (end: (reason: Error) => void) => Queue;
  /** Called with each packet that belongs to no tunnel. */
  readonly receive: (packet: DialPacket) => void;
  /** Called when the channel has ended. The tunnels on it do not know yet. */
  readonly closed: (streams: Iterable<PacketStream>, error?: ChannelError) => void;
}

/** The tunnels of one channel, by connection id. */
export class PacketMux {
  readonly #side: PacketSide;
  readonly #options: PacketMuxOptions;
  readonly #outbox: Outbox;
  readonly #streams = new OpenTable<bigint, PacketStream>();
  /** Connection ids that were closed or answered, oldest first. */
  readonly #past = new Set<bigint>();
  #closed = false;

  constructor(channel: PacketChannel, options: PacketMuxOptions) {
    this.#side = options.side;
    this.#options = options;
    this.#outbox = new Outbox(channel);
    channel.start({
      packet: (packet) => this.#receive(packet),
      drain: () => this.#outbox.drain(),
      close: (error) => this.#close(error),
    });
  }

  get size(): number {
    return this.#streams.size;
  }

  has(connectID: bigint): boolean {
    return this.#streams.has(connectID);
  }

  /** @param closed called when the tunnel has nothing more to send */
  open(connectID: bigint, closed?: () => void): PacketStream {
    const queue = this.#options.queue((reason) => stream.destroy(reason));
    const stream: PacketStream = new PacketStream({
      side: this.#side,
      connectID,
      outbox: this.#outbox,
      maxData: this.#options.maxData,
      queue,
      closed,
    });
    this.#past.delete(connectID);
    this.#streams.set(connectID, stream);
    stream.once('close', () => {
      this.#streams.delete(connectID);
      this.#remember(connectID);
    });
    return stream;
  }

  post(packet: Packet): void {
    this.#outbox.post(packet);
  }

  /** Closes a connection that has no tunnel here. */
  disown(connectID: bigint): void {
    this.#remember(connectID);
    this.#outbox.post(closePacket(this.#side, connectID));
  }

  /** Sends nothing after what is already queued. */
  end(): void {
    this.#outbox.end();
  }

  #receive(packet: Packet): void {
    switch (packet.type) {
      case 'DATA': {
        // Go's peers also ignore a connection id of 0: a packet without an id decodes to it.
        if (packet.connectID === 0n) return;
        const stream = this.#streams.get(packet.connectID);
        if (stream) stream.receive(packet.data);
        else this.#answerUnknown(packet.connectID, 'unrecognized connectID');
        return;
      }
      case 'CLOSE_REQ':
        if (this.#side !== 'serving') return;
        if (!this.#closeStream(packet.connectID)) this.#answerUnknown(packet.connectID, 'Unknown connectID');
        return;
      case 'CLOSE_RSP':
        if (this.#side === 'dialling') this.#closeStream(packet.connectID, packet.error);
        return;
      default:
        this.#options.receive(packet);
    }
  }

  #closeStream(connectID: bigint, error?: string): boolean {
    const stream = this.#streams.get(connectID);
    stream?.receiveClose(error);
    return stream !== undefined;
  }

  /**
   * Answers once per connection, and not at all if the answer would have to wait behind many: two ends that answer every stray packet
   * from their receive loops block each other for good (seen with ANP when 16 busy tunnels were cut at once).
   */
  #answerUnknown(connectID: bigint, error: string): void {
    if (this.#past.has(connectID)) return;
    this.#remember(connectID);
    this.#outbox.offer(closePacket(this.#side, connectID, error));
  }

  #remember(connectID: bigint): void {
    this.#past.add(connectID);
    if (this.#past.size > MAX_REMEMBERED) this.#past.delete(this.#past.values().next().value as bigint);
  }

  #close(error?: ChannelError): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#outbox.clear();
    this.#options.closed([...this.#streams.values()], error);
  }
}
