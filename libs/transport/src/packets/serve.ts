import type { Packet } from '@isthmus/proto';
import { asDialError, type Caller, DialAbort, DialError, PlaneEnded, type Role, SessionLost } from '@isthmus/tunnel';
import type { PacketChannel, StatusError } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import { newDial, type ServeDialOptions, type ServedDial, serveDial, type Waiter } from '../dial-to-tunnel.ts';
import { Backlog, ObservedChannel, pausing, type Unread } from './channel.ts';
import { type DialPacket, PacketMux } from './mux.ts';
import type { PacketStream } from './stream.ts';

type DialRequestPacket = Extract<Packet, { type: 'DIAL_REQ' }>;

export interface ServePacketsOptions extends ServeDialOptions {
  /** `gateway`: a caller's stream, which carries one tunnel. `agent`: a Go server's stream, which carries many. */
  readonly role: Extract<Role, 'gateway' | 'agent'>;
  readonly tenant: string;
  readonly caller?: Caller;
  /** W3C trace context that the caller sent. */
  readonly traceparent?: string;
  /** How long a dial may take, in milliseconds. */
  readonly dialMs?: number;
}

/** Serves the dials that arrive as packets. */
export class PacketServer {
  readonly #closed = Promise.withResolvers<Error | undefined>();
  /** Resolves when the channel has ended, with the reason unless it ended in good order. */
  readonly closed = this.#closed.promise;
  readonly #channel: ObservedChannel;
  readonly #options: ServePacketsOptions;
  readonly #mux: PacketMux;
  /** By the dial's random number: the dial's signal until it has an answer, then its tunnel's stream. */
  readonly #served = new Map<bigint, DialAbort | PacketStream>();
  #lastConnectID = 0n;
  #over = false;
  #closeTimer: NodeJS.Timeout | undefined;

  constructor(channel: PacketChannel, options: ServePacketsOptions) {
    this.#options = options;
    this.#channel = new ObservedChannel(channel, options.events, options.role);
    this.#mux = new PacketMux(this.#channel, {
      side: 'serving',
      unread: this.#unread(),
      ...(options.role === 'agent' && { maxData: TRANSPORT.packetsAgentDataBytes }),
      receive: (packet) => this.#receive(packet),
      closed: (streams, error) => this.#end(streams, error),
    });
  }

  #unread(): (end: (reason: Error) => void) => Unread {
    if (this.#options.role === 'gateway') return () => pausing(this.#channel);
    const backlog = new Backlog(this.#channel, { reader: 'destination' });
    return (end) => backlog.open(end);
  }

  /** Dials and tunnels. */
  get open(): number {
    return this.#served.size;
  }

  /** Asks the other side to send dials elsewhere while it can. Still takes them. */
  drain(): void {
    this.#mux.post({ type: 'DRAIN' });
  }

  /** Ends the channel and every tunnel on it. */
  destroy(reason: Error): void {
    this.#channel.destroy(reason);
  }

  #receive(packet: DialPacket): void {
    if (packet.type === 'DIAL_REQ') this.#admit(packet);
    // It may cross the DIAL_RSP. Then nothing else will ever close the tunnel.
    else if (packet.type === 'DIAL_CLS') this.#served.get(packet.random)?.abort(new Error('caller gave up its dial'));
  }

  #admit(packet: DialRequestPacket): void {
    // The same dial was sent twice: the answer to the first one answers both.
    if (this.#served.has(packet.random)) return;
    try {
      this.#checkRoom();
      const request = this.#request(packet);
      this.#served.set(packet.random, request.signal);
      this.#channel.guarded(() => this.#serve(packet.random, request))();
    } catch (error) {
      this.#options.events.emit('refused', `${this.#options.role} packets`, this.#channel.remote, error as Error);
      this.#refuse(packet.random, asDialError(error));
      if (this.#options.role === 'gateway' && this.open === 0) this.#finish();
    }
  }

  #checkRoom(): void {
    if (this.#options.role === 'gateway' && (this.#over || this.open > 0)) {
      throw new DialError(
        'http_request_error',
        'this stream carries one tunnel only: open another stream for another dial',
      );
    }
    if (this.open >= TRANSPORT.packetsTunnels) {
      const text = `this stream carries ${TRANSPORT.packetsTunnels} tunnels already`;
      throw new DialError('connection_limit_reached', text);
    }
  }

  /** Throws DialError http_request_error for a packet that is not a dial. */
  #request({ protocol, address }: DialRequestPacket): ServedDial {
    if (protocol !== 'tcp') {
      throw new DialError('http_request_error', `dial ${protocol} ${address}: unknown network, want tcp`);
    }
    const { tenant, caller, traceparent, dialMs: timeout = TRANSPORT.packetsDialMs } = this.#options;
    return newDial(address, { tenant, timeout }, caller, traceparent);
  }

  #serve(random: bigint, request: ServedDial): void {
    const { role, events } = this.#options;
    const over = this.#channel.guarded(() => {
      this.#served.delete(random);
      if (role === 'gateway') this.#finish();
    });
    const waiter: Waiter = {
      accept: () => this.#accept(random),
      begun: (tunnel) => void tunnel.done.then(over),
      refuse: (error) => {
        if (!request.signal.aborted) this.#refuse(random, error);
        over();
      },
      unanswered: () => {
        events.emit('dial:undelivered', request);
        over();
      },
      fault: this.#channel.guarded((error: Error) => {
        throw error;
      }),
    };
    void serveDial(request, waiter, this.#options);
  }

  #accept(random: bigint): PacketStream {
    const connectID = ++this.#lastConnectID;
    this.#mux.post({ type: 'DIAL_RSP', random, connectID, error: '' });
    // After the CLOSE_RSP, a caller's stream has nothing more to say. Its end goes out in the same write, while the caller still reads.
    const stream = this.#mux.open(connectID, this.#options.role === 'gateway' ? () => this.#finish() : undefined);
    this.#served.set(random, stream);
    return stream;
  }

  #refuse(random: bigint, error: DialError): void {
    this.#mux.post({ type: 'DIAL_RSP', random, connectID: 0n, error: error.message });
  }

  /** A caller's stream ends with its tunnel. A caller that does not close it in time is cut off. */
  #finish(): void {
    if (this.#over) return;
    this.#over = true;
    const late = this.#channel.guarded(() => this.#channel.destroy(new Error('stream not closed in time')));
    this.#closeTimer = setTimeout(late, TRANSPORT.packetsCloseMs);
    this.#closeTimer.unref();
    // Last, because the stream may close at once.
    this.#mux.end();
  }

  #end(streams: Iterable<PacketStream>, error?: StatusError): void {
    this.#over = true;
    clearTimeout(this.#closeTimer);
    const orderly = this.#options.role === 'gateway' && !error;
    for (const stream of streams) {
      if (orderly) stream.ended();
      else stream.lost(this.#reason(error));
    }
    for (const served of this.#served.values()) if (served instanceof DialAbort) served.abort(this.#reason(error));
    this.#closed.resolve(error);
  }

  #reason(cause: StatusError | undefined): Error {
    if (cause?.cause instanceof PlaneEnded) return cause.cause;
    const text = cause?.message ?? 'stream ended';
    return this.#options.role === 'gateway' ? new Error(`caller went away: ${text}`) : new SessionLost(text, { cause });
  }
}
