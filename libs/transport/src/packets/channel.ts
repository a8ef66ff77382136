import type { Packet } from '@isthmus/proto';
import { type Guarded, guarding, SharedBudget } from '@isthmus/runtime';
import { type PlaneEvents, planeEnded, ReaderStalled, type Role, type TunnelSide } from '@isthmus/tunnel';
import type { PacketChannel, PacketSink } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';

/** ANP's two methods; its services have no package. */
export const PROXY_METHOD = '/ProxyService/Proxy';
export const CONNECT_METHOD = '/AgentService/Connect';

/**
 * The same channel, which also emits what passes, and when nobody reads it. Its sink may throw: whatever delivers the packets, such as a
 * library, could not handle that.
 */
export class ObservedChannel implements PacketChannel {
  readonly remote: string;
  /** Callbacks through this never throw: a defect ends the channel. */
  readonly guarded: Guarded;
  readonly #channel: PacketChannel;
  readonly #events: PlaneEvents;
  readonly #role: Role;
  #full = false;
  /** Whether a packet has passed. */
  #used = false;
  /** Whether this side ended it without use: an agent does so when it has a connection to that server already. */
  #needless = false;

  constructor(channel: PacketChannel, events: PlaneEvents, role: Role) {
    this.remote = channel.remote;
    this.#channel = channel;
    this.#events = events;
    this.#role = role;
    this.guarded = guarding((error) => {
      channel.destroy(planeEnded(error));
      events.emit('fault', `${role} packets`, channel.remote, error);
    });
  }

  send(packet: Packet): boolean {
    this.#passed('sent', packet);
    return this.#channel.send(packet);
  }

  start(sink: PacketSink): void {
    this.#channel.start({
      packet: this.guarded((packet: Packet) => {
        this.#passed('received', packet);
        sink.packet(packet);
      }),
      drain: this.guarded(() => sink.drain()),
      closed: (error) => {
        // First, because nothing else ends what the channel carried.
        this.guarded(() => sink.closed(error))();
        this.guarded(() => {
          if (error && !this.#needless) this.#events.emit('packet:error', this.#role, error.code);
          this.#setFull(false);
        })();
      },
    });
  }

  withhold(bytes: number): void {
    this.#channel.withhold(bytes);
    this.#setFull(this.heldUp);
  }

  release(bytes: number): void {
    this.#channel.release(bytes);
    this.#setFull(this.heldUp);
  }

  get heldUp(): boolean {
    return this.#channel.heldUp;
  }

  get over(): boolean {
    return this.#channel.over;
  }

  /** Call when a tunnel is ended because its reader stands. */
  stalled(): void {
    this.#events.emit('tunnel:stalled', this.#role);
  }

  end(): void {
    this.#channel.end();
  }

  destroy(reason: Error): void {
    this.#needless = !this.#used;
    this.#channel.destroy(reason);
  }

  #passed(direction: 'sent' | 'received', { type }: Packet): void {
    this.#used = true;
    this.#events.emit('packet', this.#role, direction, type);
  }

  #setFull(now: boolean): void {
    if (now === this.#full) return;
    this.#full = now;
    this.#events.emit(now ? 'receive:full' : 'receive:free', this.#role);
  }
}

/** The budget of this process. */
const processBudget = new SharedBudget(TRANSPORT.packetsBudgetBytes);

interface BacklogOptions {
  /** Whose readers they are. */
  readonly reader: TunnelSide;
  readonly limits?: BacklogLimits | undefined;
  /** Who uses the budget: of several tenants none can take all. */
  readonly tenant?: string | undefined;
}

/** Each has a default. */
export interface BacklogLimits {
  /** How much may wait for one tunnel before it blocks its stream, in bytes. */
  readonly shareBytes?: number;
  /** How long a reader may take nothing while it blocks its stream, in milliseconds. */
  readonly patienceMs?: number;
  readonly budget?: SharedBudget;
}

/**
 * What waits for the readers of a stream that carries many tunnels in one window.
 *
 * What waits for a tunnel within its share counts as read, so it blocks nobody. What exceeds the share is withheld from the window
 * until the reader takes it: in the end, the peer sends at the pace of its slowest reader, and never more than the window ahead of it.
 * So no byte is lost, however slow the reader is. A reader that takes nothing while nobody else gets anything is ended after a while.
 */
export class Backlog {
  readonly #channel: ObservedChannel;
  readonly #options: BacklogOptions;
  readonly #share: number;
  readonly #patienceMs: number;
  readonly #budget: SharedBudget;
  /** Those that withhold some of the window. */
  readonly #slow = new Set<Unread>();
  readonly #look: () => void;
  #timer: NodeJS.Timeout | undefined;

  constructor(channel: ObservedChannel, options: BacklogOptions) {
    const { limits = {} } = options;
    this.#channel = channel;
    this.#options = options;
    this.#look = channel.guarded(() => this.#endStanding());
    this.#share = limits.shareBytes ?? TRANSPORT.packetsTunnelShareBytes;
    this.#patienceMs = limits.patienceMs ?? TRANSPORT.packetsPatienceMs;
    this.#budget = limits.budget ?? processBudget;
  }

  /** @param end ends the tunnel after its reader's patience */
  open(end: (reason: Error) => void): Unread {
    return new Unread(this, end);
  }

  // For the tunnels.

  /** Returns whether this many more bytes may wait for a tunnel as if they were read. */
  admit(waiting: number, bytes: number): boolean {
    const share = Math.min(this.#share, this.#budget.left / TRANSPORT.packetsBudgetParts);
    return waiting + bytes <= share && this.#budget.take(bytes, this.#options.tenant);
  }

  dismiss(bytes: number): void {
    this.#budget.give(bytes, this.#options.tenant);
  }

  withhold(unread: Unread, bytes: number): void {
    this.#slow.add(unread);
    this.#timer ??= setInterval(this.#look, this.#patienceMs / TRANSPORT.packetsReaderChecks).unref();
    this.#channel.withhold(bytes);
  }

  release(unread: Unread, bytes: number): void {
    if (unread.withheld === 0) this.#slow.delete(unread);
    if (this.#slow.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    this.#channel.release(bytes);
  }

  #endStanding(): void {
    const { heldUp, over } = this.#channel;
    for (const unread of [...this.#slow]) {
      // Nobody waits for a channel that has ended, but its data takes memory all the same.
      if (unread.look(heldUp || over) < (this.#patience * TRANSPORT.packetsReaderChecks) / this.#patienceMs) continue;
      this.#channel.stalled();
      unread.end(this.#reason(unread));
    }
  }

  /** In milliseconds. */
  get #patience(): number {
    return this.#channel.over ? TRANSPORT.packetsPatienceWhenOverMs : this.#patienceMs;
  }

  #reason({ waiting }: Unread): ReaderStalled {
    const { reader } = this.#options;
    const { remote, over } = this.#channel;
    const consequence = over ? `came before ${remote} went away` : `held up every other tunnel of ${remote}`;
    return new ReaderStalled(
      `the ${reader} read nothing for ${this.#patience / 1000} s while ${waiting} bytes waited for it and ${consequence}: ` +
        'find out why it stopped reading',
    );
  }
}

/** Counts what waits for the reader of one tunnel. */
export class Unread {
  readonly end: (reason: Error) => void;
  readonly #backlog: Backlog;
  /** Bytes that wait within the share. */
  #admitted = 0;
  /** Bytes that wait and are withheld from the window. */
  withheld = 0;
  /** Whether the reader has taken something since the last check. */
  #moved = true;
  /** How many checks in a row it had not, while it blocked its stream. */
  #still = 0;

  constructor(backlog: Backlog, end: (reason: Error) => void) {
    this.#backlog = backlog;
    this.end = end;
  }

  /** In bytes. */
  get waiting(): number {
    return this.withheld + this.#admitted;
  }

  /** This many bytes arrived and have to wait. */
  put(bytes: number): void {
    if (this.withheld === 0 && this.#backlog.admit(this.#admitted, bytes)) this.#admitted += bytes;
    else {
      this.withheld += bytes;
      this.#backlog.withhold(this, bytes);
    }
  }

  /** The reader took this many of them. */
  take(bytes: number): void {
    this.#moved = true;
    const released = Math.min(this.withheld, bytes);
    const dismissed = Math.min(this.#admitted, bytes - released);
    this.withheld -= released;
    this.#admitted -= dismissed;
    this.#backlog.dismiss(dismissed);
    if (released > 0) this.#backlog.release(this, released);
  }

  /** The tunnel has ended. What waits is dropped. */
  close(): void {
    this.take(this.waiting);
  }

  /** Returns for how many checks in a row the reader has taken nothing while it blocked its stream. */
  look(heldUp: boolean): number {
    this.#still = heldUp && !this.#moved ? this.#still + 1 : 0;
    this.#moved = false;
    return this.#still;
  }
}
