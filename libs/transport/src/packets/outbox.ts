import type { Packet } from '@isthmus/proto';
import { PlaneEnded } from '@isthmus/tunnel';
import type { PacketChannel } from '@isthmus/wire';

/** With more waiting packets than this, what may be dropped is dropped. */
const MAX_OFFERED = 1_024;

/** With more waiting packets than this, the peer does not read, and the channel is ended. */
const MAX_POSTED = 65_536;

/**
 * What waits for a full channel. Packets that open and close tunnels go before data. Tunnels with data take turns, one packet each, so
 * that no bulk transfer starves the others. A receive loop never waits here.
 */
export class Outbox {
  readonly #channel: PacketChannel;
  #posted: Packet[] = [];
  /** Tunnels with data, in order of arrival. Each sends one packet when called. */
  readonly #turns = new Set<() => void>();
  #full = false;
  #flushing = false;
  #ending = false;
  #ended = false;

  constructor(channel: PacketChannel) {
    this.#channel = channel;
  }

  /** Sends a packet that must arrive. */
  post(packet: Packet): void {
    if (this.#ending) return;
    this.#posted.push(packet);
    if (this.#posted.length > MAX_POSTED)
      this.#channel.destroy(new PlaneEnded(`the peer reads nothing: ${MAX_POSTED} packets wait for it`));
    this.#flush();
  }

  /** Sends a packet that may be dropped if many wait. */
  offer(packet: Packet): void {
    if (this.#posted.length < MAX_OFFERED) this.post(packet);
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
    this.#posted = [];
    this.#turns.clear();
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
    while (!this.#full && sent < this.#posted.length) this.send(this.#posted[sent++] as Packet);
    if (sent > 0) this.#posted.splice(0, sent);
  }
}
