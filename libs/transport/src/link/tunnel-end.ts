import { Waiting } from '@isthmus/runtime';
import {
  type Carrier,
  CUT_BY,
  type DestinationEnd,
  type EndUser,
  HungUp,
  LinkReset,
  type Loss,
  PlaneEnded,
  SessionLost,
  type StreamUser,
  type TunnelEnd,
} from '@isthmus/tunnel';
import {
  ErrorCode,
  type Field,
  failureOf,
  type Head,
  type HeadKind,
  type Http2Stream,
  headOf,
  StreamError,
  type StreamHandler,
} from '@isthmus/wire';

/** What the streams on a link need of it. */
export interface CarrierLink {
  /** What is at the other side, for error texts. */
  readonly peer: string;
  /** What is at the other ends of the tunnels. */
  readonly far: 'caller' | 'destination';
  /** Called once no further frame of a stream arrives or leaves. */
  readonly closed: (stream: Http2Stream) => void;
}

/** Code of a reset that says: the plane cut this tunnel, and not its caller or destination. What cut it is not known, or was the path. */
const BY_PLANE = ErrorCode.INTERNAL_ERROR;

/** The same, and what cut it: this code and the next ones stand for the entries of CUT_BY. */
const CUT = 0x49_53_01_00;

/**
 * Code of a reset that says: the way to the tunnel's other end is lost, and nobody has ended the tunnel. It and the next two are our own
 * codes, for tunnels that can be resumed, so both sides know them (RFC 9113 section 7).
 */
export const WAY_LOST = 0x49_53_00_01;
/** The same, because the other end's process closed its connection. */
const HUNG_UP = 0x49_53_00_02;
/** The same, because the other end's connection was reset. */
const RESET = 0x49_53_00_03;

/** The code of a reset that ends a tunnel for both its ends. */
export function endingCode(reason: Error): number {
  if (!(reason instanceof PlaneEnded)) return ErrorCode.CANCEL;
  return reason.by === 'path' ? BY_PLANE : CUT + CUT_BY.indexOf(reason.by);
}

/** Returns what a reset says of its tunnel: that its way is lost, or that the plane cut it. Undefined for all other codes. */
function meaningOf(code: number | undefined, { peer, far }: CarrierLink, cause?: Error): PlaneEnded | undefined {
  const lost = `${peer} has lost the other end of the tunnel`;
  if (code === WAY_LOST) return new SessionLost(lost, { cause });
  if (code === HUNG_UP)
    return new HungUp(`${lost}: it hung up`, { by: far === 'destination' ? 'agent' : 'gateway', cause });
  if (code === RESET) return new LinkReset(`${lost}: it was reset`, { cause });
  const by = code === BY_PLANE ? 'path' : CUT_BY[(code ?? 0) - CUT];
  return by && new PlaneEnded(`${peer} ended the tunnel: its log says why`, { by, cause });
}

function codeOfLoss(reason: SessionLost): number {
  if (reason instanceof HungUp) return HUNG_UP;
  return reason instanceof LinkReset ? RESET : WAY_LOST;
}

/** Hears of a stream until its use is known. */
interface StreamEvents {
  readonly headed?: (head: Head, kind: HeadKind) => void;
  /** Both sides have ended, or one has reset the stream. */
  readonly closed: (code: number | undefined) => void;
}

/**
 * A tunnel's end on a link, from the stream's first frame on. It is used in one of two ways: joined with another end, which writes what is read here;
 * or as the carrier of the tunnel's own half, which from then on hears the stream itself. What nobody takes yet waits here, and the stream's window
 * is the bound of it.
 */
export class StreamEnd implements DestinationEnd, Carrier, StreamHandler {
  readonly halfOpen = true;
  readonly detached = false;
  readonly stream: Http2Stream;
  /**
   * Whether the half of the tunnel is in the process at the other side of the link, and not behind a hub or gateway. Unset for a tunnel that ends with
   * what carries it.
   */
  halfAtPeer: boolean | undefined;
  readonly #link: CarrierLink;
  /** Unset once a half has the stream. */
  #events: StreamEvents | undefined;
  #user: EndUser | undefined;
  /** The end on another link, to which marks pass. */
  #other: StreamEnd | undefined;
  /** Whether the user wants what comes, and what waits until then. Of marks, the last says all that earlier ones did. */
  #flows = false;
  #waiting: Waiting | undefined;
  #mark: Buffer | undefined;
  /** Whether the user was told the end, and why the stream is over. */
  #endTold = false;
  #closed: { readonly failure: Error | undefined } | undefined;
  /** Whether the user waits for room; for all that was written to leave; and for our end. */
  #isFull = false;
  #whenWritten: (() => void) | undefined;
  #whenFinished: (() => void) | undefined;
  #leaving: (() => void)[] = [];
  #hasLeft = false;

  constructor(stream: Http2Stream, link: CarrierLink, events: StreamEvents) {
    this.stream = stream;
    this.#link = link;
    this.#events = events;
    stream.handler = this;
  }

  whenLeft(left: () => void): void {
    if (this.#hasLeft) left();
    else this.#leaving.push(left);
  }

  #leave(): void {
    this.#hasLeft = true;
    for (const left of this.#leaving.splice(0)) left();
  }

  // As the carrier of a half.

  deliverTo(half: StreamUser): void {
    const { stream } = this;
    this.#events = undefined;
    this.#leave();
    stream.handler = half;
    for (let piece = this.#waiting?.shift(); piece; piece = this.#waiting?.shift()) half.onData(piece);
    if (this.#mark) half.onMark(this.#mark);
    // This end stays for as long as its tunnel does.
    this.#waiting = undefined;
    this.#mark = undefined;
    if (stream.complete) half.onEnd();
    // If this end was not told yet, the half will be.
    if (this.#closed && stream.handler === half) half.onClose(stream.code, stream.reason);
  }

  drop(reason?: Error): void {
    this.#events = undefined;
    this.stream.handler = this;
    this.stream.reset(reason ? endingCode(reason) : WAY_LOST);
  }

  closed(code: number | undefined, reason: Error | undefined): Loss | undefined {
    this.stream.release();
    this.#link.closed(this.stream);
    if (code === undefined) return undefined;
    const said = this.#meaningOf(code, reason) ?? new Error(`${this.#link.far} went away`);
    if (said instanceof SessionLost) return { ends: false, reason: said };
    // If it was cut here, no other carrier is to come. Any other end of a link loses its streams.
    if (reason) return { ends: reason instanceof PlaneEnded, reason };
    return { ends: true, reason: said instanceof StreamError ? new PlaneEnded(said.message) : said };
  }

  /** Returns what the end of the stream by a code or a reason means. Undefined: the other side went away. */
  #meaningOf(code: number, reason: Error | undefined): Error | undefined {
    if (reason) {
      // How a process between the tunnel's ends was lost says nothing about the other end.
      const isBetween = this.halfAtPeer === false && (reason instanceof HungUp || reason instanceof LinkReset);
      return isBetween ? new SessionLost(reason.message, { cause: reason }) : reason;
    }
    const failure = failureOf(code);
    return meaningOf(code, this.#link, failure) ?? failure;
  }

  // As the end that a user joins with another.

  passOn(destination: TunnelEnd): boolean {
    if (!(destination instanceof StreamEnd)) return false;
    if (this.halfAtPeer === undefined || destination.halfAtPeer === undefined) return false;
    this.#other = destination;
    destination.#other = this;
    return true;
  }

  use(user: EndUser): void {
    this.#user = user;
    if (this.#mark) this.onMark(this.#mark);
    this.#mark = undefined;
    const came = this.#waiting || this.stream.complete || this.#closed;
    this.#flows = !came;
    if (came) queueMicrotask(() => this.resume());
  }

  write(bytes: Uint8Array): boolean {
    const { stream } = this;
    stream.write(bytes as Buffer);
    // A little may wait anywhere.
    this.#isFull = stream.pending > stream.config.smallBytes && !stream.leavesSoon;
    return !this.#isFull;
  }

  finish(): void {
    this.stream.end();
  }

  pause(): void {
    this.#flows = false;
  }

  resume(): void {
    if (this.#flows) return;
    this.#flows = true;
    this.#tell();
  }

  get writableLength(): number {
    return this.stream.pending;
  }

  whenFinished(then: () => void): void {
    if (this.stream.localEnded) then();
    else this.#whenFinished = then;
  }

  whenDelivered(then: () => void): void {
    if (this.stream.pending === 0) then();
    else this.#whenWritten = then;
  }

  close(): void {
    this.stream.reset(ErrorCode.CANCEL);
    this.resume();
  }

  abort(reason: Error): void {
    const isWay = this.halfAtPeer !== undefined && reason instanceof SessionLost;
    this.stream.reset(isWay ? codeOfLoss(reason) : endingCode(reason));
    // It may have closed before, while its user had paused.
    this.resume();
  }

  /** Tells what has waited, as far as the user wants it. */
  #tell(): void {
    if (!this.#user) return;
    while (this.#flows && this.#waiting) {
      const piece = this.#waiting.shift() as Uint8Array;
      if (this.#waiting.length === 0) this.#waiting = undefined;
      this.#user?.onData(piece);
      this.stream.consume(piece.length);
    }
    if (!this.#flows) return;
    if (this.stream.complete && !this.#endTold) {
      this.#endTold = true;
      this.#user?.onEnd();
    }
    if (!this.#closed) return;
    const user = this.#user;
    this.#user = undefined;
    user?.onClose(this.#closed.failure);
  }

  // What the stream says, until a half hears it.

  onHeaders(fields: readonly Field[], kind: HeadKind): void {
    if (!this.#user) this.#events?.headed?.(headOf(fields), kind);
  }

  onData(bytes: Buffer): void {
    if (this.#flows && !this.#waiting) {
      this.#user?.onData(bytes);
      this.stream.consume(bytes.length);
    } else {
      this.#waiting ??= new Waiting();
      this.#waiting.push(bytes);
    }
  }

  onMark(payload: Buffer): void {
    // A copy, because the payload is valid only now.
    if (!this.#user) this.#mark = Buffer.from(payload);
    else this.#other?.stream.mark(payload);
  }

  onEnd(): void {
    this.#tell();
  }

  onWritable(): void {
    const written = this.#whenWritten;
    this.#whenWritten = undefined;
    written?.();
    if (this.stream.localEnded) this.#whenFinished?.();
    else if (this.#isFull) this.stream.awaitTurn(this);
  }

  writeMore(): void {
    this.#isFull = false;
    this.#user?.onDrain();
  }

  onClose(code: number | undefined, reason: Error | undefined): void {
    if (this.#closed) return;
    this.#closed = { failure: code === undefined ? undefined : this.#meaningOf(code, reason) };
    this.stream.release();
    this.#link.closed(this.stream);
    this.#leave();
    if (!this.#user) this.#events?.closed(code);
    // What was read before is delivered first.
    if (code !== undefined) this.#flows = true;
    this.#tell();
  }
}
