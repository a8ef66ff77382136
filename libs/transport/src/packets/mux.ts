import type { Packet } from '@isthmus/proto';
import { type Guarded, guarding, OpenTable, SharedBudget } from '@isthmus/runtime';
import { PlaneEnded, type PlaneEvents, planeEnded, ReaderStalled } from '@isthmus/tunnel';
import type { PacketChannel, StatusError } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import { closePacket, type PacketRole, PacketStream, type Unread } from './stream.ts';

/** ANP's two methods; its services have no package. */
export const PROXY_METHOD = '/ProxyService/Proxy';
export const CONNECT_METHOD = '/AgentService/Connect';

/** What may wait for readers in this process. */
export const packetsBudget = new SharedBudget(TRANSPORT.packetsBudgetBytes);

export type DialPacket = Extract<Packet, { type: 'DIAL_REQ' | 'DIAL_RSP' | 'DIAL_CLS' | 'DRAIN' }>;

interface PacketMuxOptions {
  readonly role: PacketRole;
  readonly events: PlaneEvents;
  /** Who uses the budget: of several tenants none can take all. */
  readonly tenant?: string | undefined;
  /** Called with each packet that belongs to no tunnel. */
  readonly receive: (packet: DialPacket) => void;
  /** Called when the channel has ended. The tunnels on it do not know yet. */
  readonly closed: (streams: Iterable<PacketStream>, error?: StatusError) => void;
}

interface Posted {
  readonly packet: Packet;
  readonly left: (() => void) | undefined;
}

/**
 * The tunnels of one channel, by connection id.
 *
 * What waits for a full channel: packets that open and close tunnels go before data. Tunnels with data take turns, one packet each, so that no
 * bulk transfer starves the others. A receive loop never waits here.
 *
 * What waits for the readers of the tunnels, which share one window: what waits for a tunnel within its share counts as read, so it blocks nobody.
 * What exceeds the share is withheld from the window until the reader takes it: in the end, the peer sends at the pace of its slowest reader, and
 * never more than the window ahead of it. So no byte is lost, however slow the reader is. A reader that takes nothing while nobody else gets
 * anything is ended after a while.
 */
export class PacketMux {
  readonly role: PacketRole;
  /** The peer, for logs. */
  readonly remote: string;
  /** Callbacks through this never throw: a defect ends the channel. */
  readonly guarded: Guarded;
  readonly #channel: PacketChannel;
  readonly #options: PacketMuxOptions;
  readonly #streams = new OpenTable<bigint, PacketStream>();
  /** Connection ids that were closed or answered, oldest first. */
  readonly #past = new Set<bigint>();
  #posted: Posted[] = [];
  /** Tunnels with data, in order of arrival. */
  readonly #turns = new Set<{ sendOne(): void }>();
  #full = false;
  #flushing = false;
  /** `ending`: it takes no more packets, and ends behind those that wait. */
  #state: 'open' | 'ending' | 'ended' = 'open';
  /** Tunnels for whose readers something waits. */
  readonly #slow = new Set<Unread>();
  /** What they withhold of the window, in bytes. */
  #withheld = 0;
  #timer: NodeJS.Timeout | undefined;
  /** What was last said of whether the peer can send. */
  #heldUp = false;
  /** Whether a packet has passed, and whether this side ended it without: an agent does so when it has a connection to that server already. */
  #used = false;
  #needless = false;

  constructor(channel: PacketChannel, options: PacketMuxOptions) {
    const { role, events } = options;
    this.role = role;
    this.remote = channel.remote;
    this.#channel = channel;
    this.#options = options;
    this.guarded = guarding((error) => {
      channel.destroy(planeEnded(error));
      events.emit('fault', `${role} packets`, channel.remote, error);
    });
    channel.start({
      packet: this.guarded((packet: Packet) => this.#receive(packet)),
      drain: this.guarded(() => this.#drained()),
      closed: (error) => {
        // First, because nothing else ends what the channel carried.
        this.guarded(() => this.#close(error))();
        this.guarded(() => {
          if (error && !this.#needless) events.emit('packet:error', role, error.code);
          this.#tellHeldUp(false);
        })();
      },
    });
  }

  get size(): number {
    return this.#streams.size;
  }

  has(connectID: bigint): boolean {
    return this.#streams.has(connectID);
  }

  open(connectID: bigint): PacketStream {
    const stream = new PacketStream(connectID, this);
    this.#past.delete(connectID);
    this.#streams.set(connectID, stream);
    stream.once('close', () => {
      this.#streams.delete(connectID);
      remember(this.#past, connectID);
    });
    return stream;
  }

  /** Closes a connection that has no tunnel here. */
  disown(connectID: bigint): void {
    remember(this.#past, connectID);
    this.post(closePacket(this.role, connectID));
  }

  /** Sends nothing after what is already queued, and then ends the channel. */
  end(): void {
    if (this.#state === 'open') this.#state = 'ending';
    this.#turns.clear();
    this.#flush();
  }

  /** Ends the channel at once. */
  destroy(reason: Error): void {
    this.#needless = !this.#used;
    this.#channel.destroy(reason);
  }

  #close(error?: StatusError): void {
    this.#state = 'ended';
    this.#turns.clear();
    for (const { left } of this.#posted.splice(0)) left?.();
    this.#options.closed([...this.#streams.values()], error);
  }

  // What it sends.

  /**
   * Sends a packet that must arrive.
   * @param left called once the channel has taken it, or takes nothing any more
   */
  post(packet: Packet, left?: () => void): void {
    if (this.#state !== 'open') {
      left?.();
      return;
    }
    this.#posted.push({ packet, left });
    if (this.#posted.length > TRANSPORT.packetsPosted) {
      const text = `the peer reads nothing: ${TRANSPORT.packetsPosted} packets wait for it`;
      this.destroy(new PlaneEnded(text, { by: 'limit' }));
    }
    this.#flush();
  }

  /** Calls `sendOne` once, now or later, when one packet of data may be sent. */
  queue(sender: { sendOne(): void }): void {
    this.#turns.add(sender);
    this.#flush();
  }

  leave(sender: { sendOne(): void }): void {
    this.#turns.delete(sender);
  }

  /** Sends data. Only for a tunnel whose turn it is. */
  send(packet: Packet): void {
    this.#passed('sent', packet);
    this.#full = !this.#channel.send(packet);
  }

  #drained(): void {
    this.#full = false;
    this.#flush();
  }

  #flush(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    try {
      this.#sendPosted();
      // With those that come back for their next turn meanwhile.
      for (const sender of this.#turns) {
        if (this.#full) break;
        this.#turns.delete(sender);
        sender.sendOne();
        this.#sendPosted();
      }
    } finally {
      // A turn that fails is its own tunnel's. Without this, nothing would leave any more.
      this.#flushing = false;
    }
    if (this.#state !== 'ending' || this.#posted.length > 0) return;
    this.#state = 'ended';
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

  #passed(direction: 'sent' | 'received', { type }: Packet): void {
    this.#used = true;
    this.#options.events.emit('packet', this.role, direction, type);
  }

  // What it receives.

  #receive(packet: Packet): void {
    this.#passed('received', packet);
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
        if (this.role !== 'agent') return;
        if (!this.#closeStream(packet.connectID)) this.#answerUnknown(packet.connectID, 'Unknown connectID');
        return;
      case 'CLOSE_RSP':
        if (this.role === 'hub') this.#closeStream(packet.connectID, packet.error);
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
    remember(this.#past, connectID);
    if (this.#posted.length < TRANSPORT.packetsOffered) this.post(closePacket(this.role, connectID, error));
  }

  // What waits for the readers.

  /** Returns whether this many more bytes may wait for a tunnel as if they were read. */
  admit(waiting: number, bytes: number): boolean {
    const share = Math.min(TRANSPORT.packetsTunnelShareBytes, packetsBudget.left / TRANSPORT.packetsBudgetParts);
    return waiting + bytes <= share && packetsBudget.take(bytes, this.#options.tenant);
  }

  dismiss(bytes: number): void {
    packetsBudget.give(bytes, this.#options.tenant);
  }

  waits(unread: Unread): void {
    this.#slow.add(unread);
  }

  waitsNoMore(unread: Unread): void {
    this.#slow.delete(unread);
  }

  withhold(bytes: number): void {
    const checkMs = TRANSPORT.packetsPatienceMs / TRANSPORT.packetsReaderChecks;
    this.#withheld += bytes;
    this.#timer ??= setInterval(
      this.guarded(() => this.#endStanding()),
      checkMs,
    ).unref();
    this.#channel.withhold(bytes);
    this.#tellHeldUp(this.#channel.heldUp);
  }

  release(bytes: number): void {
    this.#withheld -= bytes;
    if (this.#withheld === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    this.#channel.release(bytes);
    this.#tellHeldUp(this.#channel.heldUp);
  }

  #tellHeldUp(now: boolean): void {
    if (now === this.#heldUp) return;
    this.#heldUp = now;
    this.#options.events.emit(now ? 'receive:full' : 'receive:free', this.role);
  }

  #endStanding(): void {
    const { heldUp, over } = this.#channel;
    const { packetsPatienceMs: patienceMs } = TRANSPORT;
    // Nobody waits for a channel that has ended, but its data takes memory all the same.
    const patience = over ? TRANSPORT.packetsPatienceWhenOverMs : patienceMs;
    for (const unread of [...this.#slow]) {
      const stood = unread.look(heldUp || over) >= (patience * TRANSPORT.packetsReaderChecks) / patienceMs;
      // What waits within the shares holds up nobody.
      if (!stood || unread.withheld === 0) continue;
      this.#options.events.emit('tunnel:stalled', this.role);
      const reader = this.role === 'hub' ? 'caller' : 'destination';
      const consequence = over
        ? `came before ${this.remote} went away`
        : `held up every other tunnel of ${this.remote}`;
      unread.end(
        new ReaderStalled(
          `the ${reader} read nothing for ${patience / 1000} s while ${unread.waiting} bytes waited for it and ${consequence}: ` +
            'find out why it stopped reading',
        ),
      );
    }
  }
}

/** Remembers an id, instead of the oldest one if it remembers too many. */
export function remember(ids: Set<bigint>, id: bigint): void {
  ids.add(id);
  if (ids.size > TRANSPORT.packetsRemembered) ids.delete(ids.values().next().value as bigint);
}
