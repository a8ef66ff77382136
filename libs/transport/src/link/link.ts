import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type Guarded, guarding, RandomSet } from '@isthmus/runtime';
import { type CutBy, HungUp, LinkReset, type PlaneEvents, planeEnded, SessionLost } from '@isthmus/tunnel';
import {
  type Allowance,
  Http2Link,
  type Http2LinkOptions,
  type Http2Stream,
  type LivenessOptions,
  type Readers,
  watchLiveness,
} from '@isthmus/wire';
import { Drain } from '../dials.ts';
import { Control, type ControlMessage } from './control.ts';
import { TENANT_FIELD } from './dial-heads.ts';
import { type CarrierLink, endingCode } from './tunnel-end.ts';

export interface LinkOptions extends Pick<LivenessOptions, 'ping'> {
  readonly socket: Socket;
  /** What is at the other side, for error texts: `agent a1`, `hub h1`. */
  readonly peer: string;
  readonly events: PlaneEvents;
  /** Called with each message; at the serving side, with each that is not about the link itself. */
  readonly receive?: (message: ControlMessage) => void;
  /** Of control messages of the other side's tenant. Unset: it is trusted. */
  readonly allowance?: Allowance | undefined;
  /** Those of the other side's tenant. Unset: it is of the plane. */
  readonly readers?: Readers | undefined;
}

interface LinkSide extends Pick<LivenessOptions, 'suspected'> {
  readonly role: 'client' | 'server';
  /** The link's place in events. */
  readonly where: string;
  /** See `http2Link`. */
  readonly hangsUp?: CutBy | undefined;
  readonly limits?: LinkLimits | undefined;
}

/** What both sides of a link have: its tunnels and pending dials, its control stream, which alone does not keep it open, and how it ends. */
export abstract class Link {
  protected readonly http2: Http2Link;
  protected readonly streams = new RandomSet<Http2Stream>();
  protected readonly carriers: CarrierLink;
  protected readonly where: string;
  /** Our code threw where it never should. The link ends, and the other side opens another. */
  protected readonly fault: (error: Error) => void;
  protected readonly guarded: Guarded;
  protected readonly ending: Drain;
  /** Resolves with the reason when the link and all its tunnels have ended. */
  readonly closed: Promise<Error>;
  /** Whether the other side was not heard lately. */
  silent = false;
  readonly #options: LinkOptions;

  constructor(options: LinkOptions, { role, where, hangsUp, limits, suspected }: LinkSide) {
    const { socket, peer, events, ping, readers } = options;
    const http2 = http2Link(role, socket, peer, () => mayHaveDied(), hangsUp, { ...limits, readers });
    this.http2 = http2;
    this.where = where;
    this.#options = options;
    this.fault = (error) => {
      this.destroy(error);
      events.emit('fault', where, peer, error);
    };
    this.guarded = guarding(this.fault);
    const ending = new Drain({ peer, open: () => this.open, end: (reason) => this.destroy(reason) });
    this.ending = ending;
    this.closed = ending.closed;
    http2.once('close', (reason) => ending.over(reason));
    const closed = this.guarded((stream: Http2Stream) => {
      this.streams.delete(stream);
      ending.endIfIdle();
    });
    this.carriers = { peer, far: role === 'client' ? 'destination' : 'caller', closed };
    http2.on('fault', this.fault);
    // It tells the other side the reason. If that arrives, the other side does not think that this process is dead.
    const dead = (error: Error) => http2.destroy(error, true);
    const mayHaveDied = watchLiveness(http2, dead, {
      ping,
      carries: () => this.carries,
      suspected: (is) => {
        this.silent = is;
        suspected?.(is);
      },
    });
  }

  /** Tunnels and pending dials. */
  get open(): number {
    return this.streams.size;
  }

  /** Ends the link and every tunnel on it. Data of tunnels that ended before can still be read. */
  destroy(reason: Error): void {
    this.http2.destroy(reason);
  }

  /** As `destroy`, also tunnels that could be resumed elsewhere, and tells the other side why: it may not stay. */
  destroyAndTell(reason: Error): void {
    const cut = planeEnded(reason, 'credential');
    for (const stream of [...this.streams]) stream.reset(endingCode(cut), cut);
    this.http2.destroy(reason, true);
  }

  /** Whether the link carries anything, for `watchLiveness`. */
  protected get carries(): boolean {
    return this.open > 0;
  }

  /** @param lineBytes the longest message from the other side */
  protected control(stream: Duplex, lineBytes: number, receive: (message: ControlMessage) => void): Control {
    const { peer, events, allowance } = this.#options;
    stream.once('close', () => this.destroy(new Error('control stream ended')));
    return new Control(stream, {
      ...{ lineBytes, allowance, receive, fault: this.fault },
      refused: (error) => events.emit('refused', this.where, peer, error),
      fail: (error) => this.destroy(error),
    });
  }
}

/** Of what the other side of a link may do. */
export type LinkLimits = Pick<Http2LinkOptions, 'config' | 'rules'>;

/**
 * The HTTP/2 of one side of a link. The dialling side is the HTTP/2 client, whichever side made the connection.
 * @param peer what is at the other side, for error texts
 * @param mayHaveDied see `watchLiveness`
 * @param hangsUp what has cut the tunnels if the other side's process closes the connection. Default `path`
 * @param limits default: the other side is trusted
 */
export function http2Link(
  role: 'client' | 'server',
  socket: Socket,
  peer: string,
  mayHaveDied: () => boolean = () => true,
  hangsUp?: CutBy,
  limits: LinkLimits & Pick<Http2LinkOptions, 'readers'> = {},
): Http2Link {
  const lost = (reason: NodeJS.ErrnoException) => {
    const Lost = lossOf(reason.code, mayHaveDied);
    return new Lost(`${peer}: ${reason.message}`, {
      cause: reason,
      ...(Lost === HungUp && hangsUp && { by: hangsUp }),
    });
  };
  return new Http2Link({ role, socket, lost, rules: { groupField: TENANT_FIELD }, ...limits });
}

/**
 * When a process dies, its kernel closes its connections, and resets those with bytes that the process has not read. So if we have sent
 * nothing lately, a reset comes from something on the way. If we have heard nothing for long, neither side heard the other, and the other
 * process, which lives, has closed the connection for that: what we sent meanwhile then drew the reset, which dropped its reason.
 */
function lossOf(code: string | undefined, mayHaveDied: () => boolean): typeof SessionLost {
  if (code === 'EPIPE') return HungUp;
  if (code === 'ECONNRESET') return mayHaveDied() ? HungUp : LinkReset;
  return SessionLost;
}
