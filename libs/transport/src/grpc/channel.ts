import type { Duplex } from 'node:stream';
import type { ClientDuplexStream, ServiceError } from '@grpc/grpc-js';
import { decodePacket, type Packet, type PacketError } from '@isthmus/proto';
import { inWords as messageOf } from '@isthmus/tunnel';
import { ChannelError, type PacketChannel, type PacketSink, statusName } from '@isthmus/wire';
import { inWords } from '../tls/handshake.ts';

/** How much may be held before the stream is paused, in bytes. The server can then send what its window allows, and waits. */
const HELD_AHEAD = 16 * 1024 * 1024;

/** How much may be on its way to the socket before senders must wait, in bytes. It goes ahead of all later data. */
const SENT_AHEAD = 128 * 1024;

/** A received message. Bytes that are no packet arrive as the error, so that it can be reported. */
export type Received = Packet | PacketError;

export function receivePacket(bytes: Buffer): Received {
  try {
    return decodePacket(bytes);
  } catch (error) {
    return error as PacketError;
  }
}

/** Our stream at a Go server, on grpc-js. */
class ClientChannel implements PacketChannel {
  readonly remote: string;
  readonly #call: ClientDuplexStream<Packet, Received>;
  /** grpc-js's calls are Duplexes of Node. Its types leave out what it does not document. */
  readonly #stream: Duplex;
  #sink: PacketSink | undefined;
  /** Set once it is closed. */
  #closed: { readonly error: ChannelError | undefined } | undefined;
  #ended = false;
  #held = 0;
  /** Bytes that grpc-js has and the socket has not. */
  #unsent = 0;
  /** Somebody waits for `drain`. */
  #full = false;

  constructor(call: ClientDuplexStream<Packet, Received>, remote: string) {
    this.#call = call;
    this.#stream = call as unknown as Duplex;
    this.remote = remote;
    call.on('error', (error: ServiceError) => this.#close(callError(error)));
    this.#stream.on('end', () => {
      // ANP's peers treat the end of one direction as the end of both.
      this.end();
      this.#close();
    });
  }

  start(sink: PacketSink): void {
    this.#sink = sink;
    if (this.#closed) {
      sink.close(this.#closed.error);
      return;
    }
    this.#stream.on('data', (received: Received) => {
      if (this.#closed) return;
      if (received instanceof Error)
        this.destroy(new ChannelError('InvalidArgument', `bad packet: ${received.message}`));
      else sink.packet(received);
    });
  }

  send(packet: Packet): boolean {
    if (this.#ended || this.#closed) return true;
    const bytes = packet.type === 'DATA' ? packet.data.length : 0;
    this.#unsent += bytes;
    const room = this.#stream.write(packet, () => this.#sent(bytes));
    this.#full = !room || this.#unsent >= SENT_AHEAD;
    return !this.#full;
  }

  #sent(bytes: number): void {
    this.#unsent -= bytes;
    if (!this.#full || this.#unsent >= SENT_AHEAD || this.#stream.writableNeedDrain) return;
    this.#full = false;
    this.#sink?.drain();
  }

  pause(): void {
    if (!this.#closed) this.#stream.pause();
  }

  resume(): void {
    if (!this.#closed) this.#stream.resume();
  }

  hold(bytes: number): void {
    const before = this.heldUp;
    this.#held += bytes;
    if (this.heldUp && !before) this.pause();
  }

  free(bytes: number): void {
    const before = this.heldUp;
    this.#held -= bytes;
    if (before && !this.heldUp) this.resume();
  }

  get heldUp(): boolean {
    return this.#held >= HELD_AHEAD;
  }

  get over(): boolean {
    return this.#closed !== undefined;
  }

  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#stream.end();
  }

  destroy(reason: Error): void {
    if (this.#closed) return;
    this.#ended = true;
    this.#call.cancel();
    this.#close(
      reason instanceof ChannelError ? reason : new ChannelError('Canceled', reason.message, { cause: reason }),
    );
  }

  /** The stream is over. */
  #close(error?: ChannelError): void {
    if (this.#closed) return;
    this.#closed = { error };
    // What still arrives is read and dropped, or the stream would never end.
    this.#stream.resume();
    this.#sink?.close(error);
  }
}

export function clientChannel(call: ClientDuplexStream<Packet, Received>, remote: string): PacketChannel {
  return new ClientChannel(call, remote);
}

export function callError(error: ServiceError): ChannelError {
  const told = inWords(error);
  const text = told === error ? messageOf(error.details) : told.message;
  return new ChannelError(statusName(error.code), text, { cause: error });
}
