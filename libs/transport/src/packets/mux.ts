import type { Packet } from '@isthmus/proto';
import { OpenTable } from '@isthmus/runtime';
import { PlaneEnded } from '@isthmus/tunnel';
import type { PacketChannel, StatusError } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import type { Unread } from './channel.ts';
import { closePacket, type PacketSide, PacketStream } from './stream.ts';

interface Posted {
  readonly packet: Packet;
  readonly left: (() => void) | undefined;
}

/**
 * What waits for a full channel. Packets that open and close tunnels go before data. Tunnels with data take turns, one packet each, so
 * that no bulk transfer starves the others. A receive loop never waits here.
 */
export class PacketOutbox {
  readonly #channel: PacketChannel;
  #posted: Posted[] = [];
  /** Tunnels with data, in order of arrival. Each sends one packet when called. */
  readonly #turns = new Set<() => void>();
  #full = false;
  #flushing = false;
  #ending = false;
  #ended = false;

  constructor(channel: PacketChannel) {
    this.#channel = channel;
  }

  /**
   * Sends a packet that must arrive.
   * @param left called once the channel has taken it, or takes nothing any more
   */
  post(packet: Packet, left?: () => void): void {
    if (this.#ending) {
      left?.();
      return;
    }
    this.#posted.push({ packet, left });
    if (this.#posted.length > TRANSPORT.packetsPosted)
      this.#channel.destroy(
        new PlaneEnded(`the peer reads nothing: ${TRANSPORT.packetsPosted} packets wait for it`, { by: 'limit' }),
      );
    this.#flush();
  }

  /** Sends a packet that may be dropped if many wait. */
  offer(packet: Packet): void {
    if (this.#posted.length < TRANSPORT.packetsOffered) this.post(packet);
  }

  /** Calls back once, now or later, when one packet of data may be sent. */
  queue(turn: () => void): void {
    this.#turns.add(turn);
    this.#flush();
  }

  leave(turn: () => void): void {
    this.#turns.delete(turn);
  }

  /** Sends data. Only for a tunnel whose turn it is. */
  send(packet: Packet): void {
    this.#full = !this.#channel.send(packet);
  }

  /** Call when the channel takes packets again. */
  drain(): void {
    this.#full = false;
    this.#flush();
  }

  /** Ends the channel after everything that was posted. */
  end(): void {
    this.#ending = true;
    this.#turns.clear();
    this.#flush();
  }

  /** Call when the channel has ended. Drops everything that waited. */
  clear(): void {
    this.#ending = true;
    this.#ended = true;
    const posted = this.#posted;
    this.#posted = [];
    this.#turns.clear();
    for (const { left } of posted) left?.();
  }

  #flush(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    try {
      this.#sendPosted();
      while (!this.#full && this.#turns.size > 0) {
        const turn = this.#turns.values().next().value as () => void;
        this.#turns.delete(turn);
        turn();
        this.#sendPosted();
      }
    } finally {
      // A turn that fails is its own tunnel's. Without this, nothing would leave any more.
      this.#flushing = false;
    }
    if (!this.#ending || this.#ended || this.#posted.length > 0) return;
    this.#ended = true;
    this.#channel.end();
  }

  #sendPosted(): void {
    let sent = 0;
    while (!this.#full && sent < this.#posted.length) {
      const { packet, left } = this.#posted[sent++] as Posted;
      this.send(packet);
      left?.();
    }
    if (sent > 0) this.#posted.splice(0, sent);
  }
}

export type DialPacket = Extract<Packet, { type: 'DIAL_REQ' | 'DIAL_RSP' | 'DIAL_CLS' | 'DRAIN' }>;

interface PacketMuxOptions {
  readonly side: PacketSide;
  /** See `PacketStreamOptions`. */
  readonly maxData?: number;
  /** Counts what waits for the reader of a new tunnel. Its limits may end the tunnel. */
  readonly unread: (end: (reason: Error) => void) => Unread;
  /** Called with each packet that belongs to no tunnel. */
  readonly receive: (packet: DialPacket) => void;
  /** Called when the channel has ended. The tunnels on it do not know yet. */
  readonly closed: (streams: Iterable<PacketStream>, error?: StatusError) => void;
}

/** The tunnels of one channel, by connection id. */
export class PacketMux {
  readonly #side: PacketSide;
  readonly #options: PacketMuxOptions;
  readonly #outbox: PacketOutbox;
  readonly #streams = new OpenTable<bigint, PacketStream>();
  /** Connection ids that were closed or answered, oldest first. */
  readonly #past = new Set<bigint>();
  #closed = false;

  constructor(channel: PacketChannel, options: PacketMuxOptions) {
    this.#side = options.side;
    this.#options = options;
    this.#outbox = new PacketOutbox(channel);
    channel.start({
      packet: (packet) => this.#receive(packet),
      drain: () => this.#outbox.drain(),
      closed: (error) => this.#close(error),
    });
  }

  get size(): number {
    return this.#streams.size;
  }

  has(connectID: bigint): boolean {
    return this.#streams.has(connectID);
  }

  open(connectID: bigint): PacketStream {
    const unread = this.#options.unread((reason) => stream.destroy(reason));
    const stream: PacketStream = new PacketStream({
      side: this.#side,
      connectID,
      outbox: this.#outbox,
      maxData: this.#options.maxData,
      unread,
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
    if (this.#past.size > TRANSPORT.packetsRemembered) this.#past.delete(this.#past.values().next().value as bigint);
  }

  #close(error?: StatusError): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#outbox.clear();
    this.#options.closed([...this.#streams.values()], error);
  }
}
