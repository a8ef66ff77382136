import type { Packet } from '@isthmus/proto';
import { type Guarded, guarding } from '@isthmus/runtime';
import { type PlaneEvents, planeEnded, type Role } from '@isthmus/tunnel';
import type { PacketChannel, PacketSink } from '@isthmus/wire';

export interface ObservedChannel extends PacketChannel {
  /** Callbacks through this never throw: a defect ends the channel. */
  readonly guarded: Guarded;
}

/**
 * The same channel, which also emits what passes, and when nobody reads it. Its sink may throw: whatever delivers the packets, such as a
 * library, could not handle that.
 */
export function observedChannel(channel: PacketChannel, events: PlaneEvents, role: Role): ObservedChannel {
  return new Observed(channel, events, role);
}

/** A class, because V8 makes an object literal with accessors a table: a microsecond for each, and a slow read of it for each packet. */
class Observed implements ObservedChannel {
  readonly remote: string;
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
      close: (error) => {
        // First, because nothing else ends what the channel carried.
        this.guarded(() => sink.close(error))();
        this.guarded(() => {
          if (error && !this.#needless) this.#events.emit('packet:error', this.#role, error.code);
          this.#setFull(false);
        })();
      },
    });
  }

  pause(): void {
    this.#setFull(true);
    this.#channel.pause();
  }

  resume(): void {
    this.#setFull(false);
    this.#channel.resume();
  }

  hold(bytes: number): void {
    this.#channel.hold(bytes);
    this.#setFull(this.heldUp);
  }

  free(bytes: number): void {
    this.#channel.free(bytes);
    this.#setFull(this.heldUp);
  }

  get heldUp(): boolean {
    return this.#channel.heldUp;
  }

  get over(): boolean {
    return this.#channel.over;
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
