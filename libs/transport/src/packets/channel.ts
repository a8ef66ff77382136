import type { Packet } from '@isthmus/proto';
import { type Guarded, guarding } from '@isthmus/runtime';
import { type PlaneEvents, planeEnded, type Role, type Segment } from '@isthmus/tunnel';

/** A stream of packets both ways, whichever library carries it. */
export interface PacketChannel {
  /** The peer, for logs. */
  readonly remote: string;
  /** Takes the packet in any case; false asks to wait for `drain`. After the end it does nothing. */
  send(packet: Packet): boolean;
  /** Begins to deliver what came and comes. Called once. */
  start(sink: PacketSink): void;
  /** Stops reading, which stops the peer. Only for a stream of one tunnel: it stops every tunnel of the stream. */
  pause(): void;
  resume(): void;
  /** Lets the peer send no more in the place of so many bytes that came, until they are freed. What comes is still delivered. */
  hold(bytes: number): void;
  free(bytes: number): void;
  /** So much is held that the peer can send next to nothing. */
  readonly heldUp: boolean;
  /** It has ended, in whichever way. */
  readonly over: boolean;
  /** Sends nothing more; what was sent still arrives. */
  end(): void;
  /** Ends both ways at once and tells the peer why if it still listens. */
  destroy(reason: Error): void;
}

export interface PacketSink {
  packet(packet: Packet): void;
  /** The channel takes packets again. */
  drain(): void;
  /** Last of all. Without an error the stream ended in good order. */
  close(error?: ChannelError): void;
}

/** A channel that broke. */
export class ChannelError extends Error {
  override readonly name = 'ChannelError';
  /** Go's name of a gRPC status, such as `Unavailable`. */
  readonly code: string;

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** Which directions of ANP's metrics a channel's two ways are at each part of the plane. */
const SEGMENTS: Readonly<Record<Role, { readonly received: Segment; readonly sent: Segment }>> = {
  gateway: { received: 'from_client', sent: 'to_client' },
  hub: { received: 'from_agent', sent: 'to_agent' },
  agent: { received: 'to_agent', sent: 'from_agent' },
};

export interface ObservedChannel extends PacketChannel {
  /** Of what is called here nothing throws: a defect ends the channel in the plane's name. */
  readonly guarded: Guarded;
}

/**
 * The same channel, which also says what passes, and when it is not read from. Its sink may throw: whoever delivers packets, be it a
 * library, would not know what to do about it.
 */
export function observedChannel(channel: PacketChannel, events: PlaneEvents, role: Role): ObservedChannel {
  const { received, sent } = SEGMENTS[role];
  const method = role === 'gateway' ? 'Proxy' : 'Connect';
  const guarded = guarding((error) => {
    channel.destroy(planeEnded(error));
    events.emit('fault', `${role} packets`, channel.remote, error);
  });
  let full = false;
  const setFull = (now: boolean) => {
    if (now === full) return;
    full = now;
    events.emit(now ? 'receive:full' : 'receive:free', method);
  };
  return {
    remote: channel.remote,
    guarded,
    send(packet) {
      events.emit('packet', sent, packet.type);
      return channel.send(packet);
    },
    start(sink) {
      channel.start({
        packet: guarded((packet: Packet) => {
          events.emit('packet', received, packet.type);
          sink.packet(packet);
        }),
        drain: guarded(() => sink.drain()),
        close(error) {
          // First, for nobody else ends what the channel carried.
          guarded(() => sink.close(error))();
          guarded(() => {
            if (error) events.emit('packet:error', received, error.code, 'Unknown');
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
    destroy: (reason) => channel.destroy(reason),
  };
}
