import { constants } from 'node:http2';
import type { Duplex } from 'node:stream';
import { type ClientDuplexStream, type ServerDuplexStream, type ServiceError, status } from '@grpc/grpc-js';
import type { Packet } from '@isthmus/proto';
import { ChannelError, type PacketChannel, type PacketSink } from '../packets/channel.ts';
import { streamOf } from './internals.ts';
import { type Received, statusName } from './service.ts';

/** How long a peer may take to read why its stream ends before it is reset, in milliseconds. */
const RESET_MS = 1_000;

/** A gRPC stream as a channel of packets. What server and client do differently is passed in. */
class GrpcChannel implements PacketChannel {
  readonly remote: string;
  readonly #stream: Duplex;
  readonly #fail: (reason: Error) => void;
  #sink: PacketSink | undefined;
  /** Set once it is closed. */
  #closed: { readonly error: ChannelError | undefined } | undefined;
  #ended = false;

  constructor(stream: Duplex, remote: string, fail: (reason: Error) => void) {
    this.#stream = stream;
    this.remote = remote;
    this.#fail = fail;
    stream.on('end', () => {
      // ANP's peers take the end of one way for the end of both.
      this.end();
      this.close();
    });
  }

  get ended(): boolean {
    return this.#ended;
  }

  start(sink: PacketSink): void {
    this.#sink = sink;
    if (this.#closed) {
      sink.close(this.#closed.error);
      return;
    }
    this.#stream.on('drain', () => sink.drain());
    this.#stream.on('data', (received: Received) => {
      if (this.#closed) return;
      if (received instanceof Error)
        this.destroy(new ChannelError('InvalidArgument', `bad packet: ${received.message}`));
      else sink.packet(received);
    });
  }

  send(packet: Packet): boolean {
    if (this.#ended || this.#closed) return true;
    return this.#stream.write(packet);
  }

  pause(): void {
    if (!this.#closed) this.#stream.pause();
  }

  resume(): void {
    if (!this.#closed) this.#stream.resume();
  }

  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#stream.end();
  }

  destroy(reason: Error): void {
    if (this.#closed) return;
    this.#ended = true;
    this.#fail(reason);
    this.close(
      reason instanceof ChannelError ? reason : new ChannelError('Canceled', reason.message, { cause: reason }),
    );
  }

  /** The stream is over. */
  close(error?: ChannelError): void {
    if (this.#closed) return;
    this.#closed = { error };
    // What still comes is read and dropped, or the stream would never end.
    this.#stream.resume();
    this.#sink?.close(error);
  }
}

/** A caller's or an agent's stream at our server. */
export function serverChannel(call: ServerDuplexStream<Received, Packet>, remote: string): PacketChannel {
  let reset: NodeJS.Timeout | undefined;
  const fail = (reason: Error) => {
    // grpc-js sends the status behind what was written; a peer that does not read would hold the stream for good.
    reset = setTimeout(() => streamOf(call).close(constants.NGHTTP2_CANCEL), RESET_MS);
    refuse(call, reason instanceof ChannelError ? status.INVALID_ARGUMENT : status.ABORTED, reason.message);
  };
  const channel = new GrpcChannel(asDuplex(call), remote, fail);
  // Comes for every call, however it ended.
  call.once('cancelled', () => {
    clearTimeout(reset);
    channel.close(channel.ended ? undefined : new ChannelError('Canceled', 'stream was cancelled'));
  });
  return channel;
}

/** Ends a server's call with an error status, behind what was written. */
export function refuse(call: ServerDuplexStream<Received, Packet>, code: status, details: string): void {
  call.emit('error', Object.assign(new Error(details), { code, details }));
}

/** Our stream at a Go server. */
export function clientChannel(call: ClientDuplexStream<Packet, Received>, remote: string): PacketChannel {
  const channel = new GrpcChannel(asDuplex(call), remote, () => call.cancel());
  call.on('error', (error: ServiceError) => channel.close(callError(error)));
  return channel;
}

export function callError(error: ServiceError): ChannelError {
  return new ChannelError(statusName(error.code), error.details, { cause: error });
}

/** grpc-js's calls are Duplexes of Node; its types leave out what it does not document. */
function asDuplex(call: object): Duplex {
  return call as Duplex;
}
