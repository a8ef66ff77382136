import type { Packet } from '@isthmus/proto';
import { type Guarded, guarding } from '@isthmus/runtime';
import { type PlaneEvents, planeEnded, type Role } from '@isthmus/tunnel';

/** A stream of packets in both directions, whichever library carries it. */
export interface PacketChannel {
  /** The peer, for logs. */
  readonly remote: string;
  /** Always takes the packet. Returns false to ask the sender to wait for `drain`. Does nothing after the end. */
  send(packet: Packet): boolean;
  /** Starts to deliver packets, including those that have arrived. Called once. */
  start(sink: PacketSink): void;
  /** Stops reading, and thereby the peer. Only for a stream with one tunnel, because it stops every tunnel of the stream. */
  pause(): void;
  resume(): void;
  /** Stops the peer from sending as many bytes as these again, until they are freed. Still delivers what arrives. */
  hold(bytes: number): void;
  free(bytes: number): void;
  /** Whether so much is held that the peer can send almost nothing. */
  readonly heldUp: boolean;
  /** Whether it has ended, for any reason. */
  readonly over: boolean;
  /** Sends nothing more. What was sent still arrives. */
  end(): void;
  /** Ends both directions at once. Tells the peer why if it still listens. */
  destroy(reason: Error): void;
}

export interface PacketSink {
  packet(packet: Packet): void;
  /** The channel takes packets again. */
  drain(): void;
  /** The last call. Without an error, the stream ended in good order. */
  close(error?: ChannelError): void;
}

/** A channel that failed. */
export class ChannelError extends Error {
  override readonly name = 'ChannelError';
  /** Go's name of a gRPC status, such as `Unavailable`. */
  readonly code: string;

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

export interface ObservedChannel extends PacketChannel {
  /** Callbacks through this never throw: a defect ends the channel. */
  readonly guarded: Guarded;
}

/**
 * Returns the same channel, which also emits what passes, and when nobody reads it. Its sink may throw: whatever delivers the packets,
 * such as a library, could not handle that.
 */
export function observedChannel(channel: PacketChannel, events: PlaneEvents, role: Role): ObservedChannel {
  const guarded = guarding((error) => {
    channel.destroy(planeEnded(error));
    events.emit('fault', `${role} packets`, channel.remote, error);
  });
  let full = false;
  /** Whether a packet has passed. */
  let used = false;
  /** Whether this side ended it without use: an agent does so when it has a connection to that server already. */
  let needless = false;
  const setFull = (now: boolean) => {
    if (now === full) return;
    full = now;
    events.emit(now ? 'receive:full' : 'receive:free', role);
  };
  return {
    remote: channel.remote,
    guarded,
    send(packet) {
      used = true;
      events.emit('packet', role, 'sent', packet.type);
      return channel.send(packet);
    },
    start(sink) {
      channel.start({
        packet: guarded((packet: Packet) => {
          used = true;
          events.emit('packet', role, 'received', packet.type);
          sink.packet(packet);
        }),
        drain: guarded(() => sink.drain()),
        close(error) {
          // First, because nothing else ends what the channel carried.
          guarded(() => sink.close(error))();
          guarded(() => {
            if (error && !needless) events.emit('packet:error', role, error.code);
            setFull(false);
          })();
        },
      });
    },
    pause() {
      setFull(true);
      channel.pause();
    },
    resume() {
      setFull(false);
      channel.resume();
    },
    hold(bytes) {
      channel.hold(bytes);
      setFull(channel.heldUp);
    },
    free(bytes) {
      channel.free(bytes);
      setFull(channel.heldUp);
    },
    get heldUp() {
      return channel.heldUp;
    },
    get over() {
      return channel.over;
    },
    end: () => channel.end(),
    destroy(reason) {
      needless = !used;
      channel.destroy(reason);
    },
  };
}
