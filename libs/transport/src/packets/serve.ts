import type { Packet } from '@isthmus/proto';
import { asDialError, DialAbort, DialError, DuplexEnd, PlaneEnded, SessionLost } from '@isthmus/tunnel';
import type { PacketChannel, StatusError } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import { newDial, type ServeDialOptions, type ServedDial, serve, type Waiter } from '../dials.ts';
import { type DialPacket, PacketMux } from './mux.ts';
import type { PacketStream } from './stream.ts';

type DialRequestPacket = Extract<Packet, { type: 'DIAL_REQ' }>;

export interface ServePacketsOptions extends Omit<ServeDialOptions, 'role'> {
  readonly tenant: string;
}

/** Serves the dials of an ANP server at an agent. */
export class PacketServer {
  readonly #closed = Promise.withResolvers<Error | undefined>();
  /** Resolves when the channel has ended, with the reason unless it ended in good order. */
  readonly closed = this.#closed.promise;
  readonly #options: ServePacketsOptions;
  readonly #mux: PacketMux;
  /** By the dial's random number: the dial's signal until it has an answer, then its tunnel's stream. */
  readonly #served = new Map<bigint, DialAbort | DuplexEnd>();
  #lastConnectID = 0n;

  constructor(channel: PacketChannel, options: ServePacketsOptions) {
    this.#options = options;
    this.#mux = new PacketMux(channel, {
      role: 'agent',
      events: options.events,
      receive: (packet) => this.#receive(packet),
      closed: (streams, error) => this.#end(streams, error),
    });
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
    this.#mux.destroy(reason);
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
      this.#mux.guarded(() => this.#serve(packet.random, request))();
    } catch (error) {
      this.#options.events.emit('refused', 'agent packets', this.#mux.remote, error as Error);
      this.#refuse(packet.random, asDialError(error));
    }
  }

  #checkRoom(): void {
    if (this.open >= TRANSPORT.packetsTunnels) {
      const text = `this stream carries ${TRANSPORT.packetsTunnels} tunnels already`;
      throw new DialError('connection_limit_reached', text);
    }
  }

  /** Throws DialError http_request_error for a packet that is not a dial. */
  #request({ protocol, address }: DialRequestPacket): ServedDial {
    return newDial(address, { tenant: this.#options.tenant, timeout: TRANSPORT.packetsDialMs, protocol });
  }

  #serve(random: bigint, request: ServedDial): void {
    const { events, dial } = this.#options;
    const over = this.#mux.guarded(() => this.#served.delete(random));
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
      fault: this.#mux.guarded((error: Error) => {
        throw error;
      }),
    };
    void serve(request, dial, waiter, { role: 'agent', events });
  }

  #accept(random: bigint): DuplexEnd {
    const connectID = ++this.#lastConnectID;
    this.#mux.post({ type: 'DIAL_RSP', random, connectID, error: '' });
    const end = new DuplexEnd(this.#mux.open(connectID), false);
    this.#served.set(random, end);
    return end;
  }

  #refuse(random: bigint, error: DialError): void {
    this.#mux.post({ type: 'DIAL_RSP', random, connectID: 0n, error: error.message });
  }

  #end(streams: Iterable<PacketStream>, error?: StatusError): void {
    const cause = error?.cause;
    const reason =
      cause instanceof PlaneEnded ? cause : new SessionLost(error?.message ?? 'stream ended', { cause: error });
    for (const stream of streams) stream.lost(reason);
    for (const served of this.#served.values()) if (served instanceof DialAbort) served.abort(reason);
    this.#closed.resolve(error);
  }
}
