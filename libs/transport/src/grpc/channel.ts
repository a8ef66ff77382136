import type { Duplex } from 'node:stream';
import type { ClientDuplexStream, ServiceError } from '@grpc/grpc-js';
import { decodePacket, type Packet, type PacketError } from '@isthmus/proto';
import { ChannelError, type PacketChannel, type PacketSink } from '../packets/channel.ts';
import { inWords } from '../tls/handshake.ts';
import { statusName } from './status.ts';

/** What may be held before the stream is paused, in bytes: from then on a server can send what its window allows, and waits. */
const HELD_AHEAD = 16 * 1024 * 1024;

/** What may be on its way to the socket before senders are asked to wait, in bytes: it goes ahead of whoever has something to say next. */
const SENT_AHEAD = 128 * 1024;

/** What came on a stream: bytes that are no packet arrive as the error, so that it can be told what they were. */
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
  /** grpc-js's calls are Duplexes of Node; its types leave out what it does not document. */
  readonly #stream: Duplex;
  #sink: PacketSink | undefined;
  /** Set once it is closed. */
  #closed: { readonly error: ChannelError | undefined } | undefined;
  #ended = false;
  #held = 0;
  /** Given to grpc-js, and not yet to the socket. */
  #unsent = 0;
  /** Someone waits for `drain`. */
  #full = false;

  constructor(call: ClientDuplexStream<Packet, Received>, remote: string) {
    this.#call = call;
    this.#stream = call as unknown as Duplex;
    this.remote = remote;
    call.on('error', (error: ServiceError) => this.#close(callError(error)));
    this.#stream.on('end', () => {
      // ANP's peers take the end of one way for the end of both.
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
    // What still comes is read and dropped, or the stream would never end.
    this.#stream.resume();
    this.#sink?.close(error);
  }
}

export function clientChannel(call: ClientDuplexStream<Packet, Received>, remote: string): PacketChannel {
  return new ClientChannel(call, remote);
}

export function callError(error: ServiceError): ChannelError {
  const told = inWords(error);
  const text = told === error ? error.details : told.message;
  return new ChannelError(statusName(error.code), text, { cause: error });
}
