import { Waiting } from '@isthmus/runtime';
import {
  type Carrier,
  type CarrierUser,
  CUT_BY,
  type DestinationEnd,
  type EndUser,
  HungUp,
  LinkReset,
  type Mark,
  PlaneEnded,
  SessionLost,
  type TunnelEnd,
} from '@isthmus/tunnel';
import {
  codeName,
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

/** What the carriers on a link need of it. */
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

/** What the failure of a stream means for its tunnel. */
function explained(failure: Error, link: CarrierLink): Error {
  const code = failure instanceof StreamError ? failure.code : undefined;
  return meaningOf(code, link, failure) ?? failure;
}

/**
 * Returns what the loss of a link means for a tunnel whose other end is not at the other side: how a process between the two was lost says nothing
 * about it. Undefined for all other failures.
 */
function ownLoss(failure: Error): SessionLost | undefined {
  const lost = failure instanceof HungUp || failure instanceof LinkReset;
  return lost ? new SessionLost(failure.message, { cause: failure }) : undefined;
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
 * or by the tunnel's own half, as a carrier. What nobody takes yet waits here, and the stream's window is the bound of it.
 */
export class StreamEnd implements DestinationEnd, StreamHandler {
  readonly halfOpen = true;
  readonly detached = false;
  readonly progress = 0;
  /**
   * Whether the half of the tunnel is in the process at the other side of the link, and not behind a hub or gateway. Unset for a tunnel that ends with
   * what carries it.
   */
  halfAtPeer: boolean | undefined;
  readonly #stream: Http2Stream;
  readonly #link: CarrierLink;
  readonly #events: StreamEvents;
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
    this.#stream = stream;
    this.#link = link;
    this.#events = events;
    stream.handler = this;
  }

  whenLeft(left: () => void): void {
    if (this.#hasLeft) left();
    else this.#leaving.push(left);
  }

  passOn(destination: TunnelEnd): boolean {
    if (!(destination instanceof StreamEnd)) return false;
    if (this.halfAtPeer === undefined || destination.halfAtPeer === undefined) return false;
    this.#other = destination;
    destination.#other = this;
    return true;
  }

  abort(reason: Error): void {
    const code =
      this.halfAtPeer !== undefined && reason instanceof SessionLost ? codeOfLoss(reason) : endingCode(reason);
    this.#stream.reset(code);
    // It may have closed before, while its user had paused. Without a user, nobody is to hear of it.
    if (this.#stream.handler === this) this.resume();
    else this.#over();
  }

  #explain(failure: Error): Error {
    const lost = this.halfAtPeer === false && ownLoss(failure);
    return lost || explained(failure, this.#link);
  }

  /** Takes the stream over as a carrier. From now on the half owns it. */
  carrier(): StreamCarrier {
    this.#leave();
    return new StreamCarrier(this, this.#stream, this.#link);
  }

  /** Gives the stream to another handler, with everything that has arrived. */
  giveTo(handler: StreamHandler): void {
    const stream = this.#stream;
    stream.handler = handler;
    for (let piece = this.#waiting?.shift(); piece; piece = this.#waiting?.shift()) handler.onData(piece as Buffer);
    if (this.#mark) handler.onMark?.(this.#mark);
    if (stream.complete) handler.onEnd();
    if (stream.closed) handler.onClose(stream.code, stream.reason);
  }

  #over(): void {
    this.#link.closed(this.#stream);
    this.#leave();
  }

  #leave(): void {
    this.#hasLeft = true;
    for (const left of this.#leaving.splice(0)) left();
  }

  // As the end that a user joins with another.

  use(user: EndUser): void {
    this.#user = user;
    if (this.#mark) this.onMark(this.#mark);
    if (this.#waiting || this.#stream.complete || this.#closed) queueMicrotask(() => this.#flow());
    else this.#flows = true;
  }

  write(bytes: Uint8Array): boolean {
    const stream = this.#stream;
    stream.write(bytes as Buffer);
    // A little may wait anywhere.
    this.#isFull = stream.pending > stream.config.smallBytes && !stream.leavesSoon;
    return !this.#isFull;
  }

  finish(): void {
    this.#stream.end();
  }

  pause(): void {
    this.#flows = false;
  }

  resume(): void {
    if (!this.#flows) this.#flow();
  }

  get writableLength(): number {
    return this.#stream.pending;
  }

  whenFinished(then: () => void): void {
    if (this.#stream.localEnded) then();
    else this.#whenFinished = then;
  }

  whenDelivered(then: () => void): void {
    if (this.#stream.pending === 0) then();
    else this.#whenWritten = then;
  }

  close(): void {
    this.#stream.reset(ErrorCode.CANCEL);
    this.resume();
  }

  #flow(): void {
    this.#flows = true;
    this.#tell();
  }

  /** Tells what has waited, as far as the user wants it. */
  #tell(): void {
    if (!this.#user) return;
    while (this.#flows && this.#waiting) {
      const piece = this.#waiting.shift() as Uint8Array;
      if (this.#waiting.length === 0) this.#waiting = undefined;
      this.#user?.onData(piece);
      this.#stream.consume(piece.length);
    }
    if (!this.#flows) return;
    if (this.#stream.complete && !this.#endTold) {
      this.#endTold = true;
      this.#user?.onEnd();
    }
    if (!this.#closed) return;
    const user = this.#user;
    this.#user = undefined;
    user?.onClose(this.#closed.failure);
  }

  // What the stream says.

  onHeaders(fields: readonly Field[], kind: HeadKind): void {
    if (!this.#user) this.#events.headed?.(headOf(fields), kind);
  }

  onData(bytes: Buffer): void {
    if (this.#flows && !this.#waiting) {
      this.#user?.onData(bytes);
      this.#stream.consume(bytes.length);
    } else {
      this.#waiting ??= new Waiting();
      this.#waiting.push(bytes);
    }
  }

  onMark(payload: Buffer): void {
    const other = this.#other;
    // A copy, because the payload is valid only now.
    if (!this.#user) this.#mark = Buffer.from(payload);
    else if (other) other.#stream.mark(payload);
  }

  onEnd(): void {
    this.#tell();
  }

  onWritable(): void {
    const written = this.#whenWritten;
    this.#whenWritten = undefined;
    written?.();
    if (this.#stream.localEnded) this.#whenFinished?.();
    else if (this.#isFull) this.#stream.awaitTurn(this);
  }

  writeMore(): void {
    this.#isFull = false;
    this.#user?.onDrain();
  }

  onClose(code: number | undefined, reason: Error | undefined): void {
    if (this.#closed) return;
    const failure = code === undefined ? undefined : (reason ?? failureOf(code));
    this.#closed = { failure: failure && this.#explain(failure) };
    this.#stream.release();
    this.#over();
    if (!this.#user) this.#events.closed(code);
    // What was read before is delivered first.
    if (code !== undefined) this.#flows = true;
    this.#tell();
  }
}

/** The payload of a mark's frame: a byte that says which positions follow `taken`, then `taken` and each of them in 6 bytes. */
const HAS_FINAL = 1;
const HAS_ASK = 2;
const POSITION_BYTES = 6;

export function encodeMark({ taken, final, ask }: Mark): Buffer {
  const has = (final === undefined ? 0 : HAS_FINAL) | (ask === undefined ? 0 : HAS_ASK);
  const bytes = Buffer.allocUnsafe(lengthOf(has));
  bytes[0] = has;
  putPosition(bytes, 1, taken);
  if (final !== undefined) putPosition(bytes, 1 + POSITION_BYTES, final);
  if (ask !== undefined) putPosition(bytes, bytes.length - POSITION_BYTES, ask);
  return bytes;
}

/** @returns undefined for a malformed mark */
export function readMark(bytes: Buffer): Mark | undefined {
  const has = bytes[0] ?? 0;
  if (has > (HAS_FINAL | HAS_ASK) || bytes.length !== lengthOf(has)) return undefined;
  const mark: { -readonly [Key in keyof Mark]: Mark[Key] } = { taken: positionAt(bytes, 1) };
  if (has & HAS_FINAL) mark.final = positionAt(bytes, 1 + POSITION_BYTES);
  if (has & HAS_ASK) mark.ask = positionAt(bytes, bytes.length - POSITION_BYTES);
  return mark;
}

/** Big-endian. Buffer's own functions for 6 bytes take a dozen calls each, and each dial has some marks. */
function putPosition(bytes: Buffer, at: number, position: number): void {
  let rest = position;
  for (let index = at + POSITION_BYTES - 1; index >= at; index--) {
    bytes[index] = rest;
    rest = (rest - (bytes[index] as number)) / 256;
  }
}

function positionAt(bytes: Buffer, at: number): number {
  let position = 0;
  for (let index = at; index < at + POSITION_BYTES; index++) position = 256 * position + (bytes[index] as number);
  return position;
}

function lengthOf(has: number): number {
  return 1 + POSITION_BYTES * (1 + (has & HAS_FINAL ? 1 : 0) + (has & HAS_ASK ? 1 : 0));
}

/** A stream of a link as the carrier of a tunnel that can be resumed. */
export class StreamCarrier implements Carrier, StreamHandler {
  readonly #stream: Http2Stream;
  readonly #link: CarrierLink;
  readonly #halfAtPeer: boolean | undefined;
  /** The handler of the stream until `deliverTo`. */
  #end: StreamEnd | undefined;
  #user: CarrierUser | undefined;
  /** Whether the half has ended the stream. It then hears nothing more. */
  #ended = false;

  constructor(end: StreamEnd, stream: Http2Stream, link: CarrierLink) {
    this.#stream = stream;
    this.#link = link;
    this.#halfAtPeer = end.halfAtPeer;
    this.#end = end;
  }

  // What the half asks for.

  deliverTo(user: CarrierUser): void {
    const end = this.#end;
    this.#user = user;
    this.#end = undefined;
    end?.giveTo(this);
  }

  data(bytes: Uint8Array): void {
    this.#stream.write(bytes as Buffer);
  }

  get drained(): boolean {
    return this.#stream.pending === 0;
  }

  awaitTurn(next: { writeMore(): void }): void {
    this.#stream.awaitTurn(next);
  }

  mark(mark: Mark): void {
    this.#stream.mark(encodeMark(mark));
  }

  consume(bytes: number): boolean {
    return this.#stream.consume(bytes);
  }

  end(last?: Mark): void {
    this.#stream.endLate(last && encodeMark(last));
  }

  drop(): void {
    this.#reset(WAY_LOST);
  }

  abort(reason: Error): void {
    this.#reset(endingCode(reason));
  }

  // What the stream says.

  onHeaders(): void {}

  onData(bytes: Buffer): void {
    this.#user?.data(this, bytes);
  }

  onMark(payload: Buffer): void {
    const mark = readMark(payload);
    if (mark) this.#user?.mark(this, mark);
    else this.#rejectMark();
  }

  onEnd(): void {
    this.#user?.ended(this);
  }

  onWritable(): void {
    this.#user?.drained(this);
  }

  onClose(code: number | undefined, reason: Error | undefined): void {
    const { far, closed } = this.#link;
    const user = this.#user;
    this.#stream.release();
    closed(this.#stream);
    if (this.#ended || !user) return;
    if (reason) {
      // Cut here, and not lost: no other carrier is to come.
      if (reason instanceof PlaneEnded && !(reason instanceof SessionLost)) user.aborted(this, reason);
      else user.lost(this, (!this.#halfAtPeer && ownLoss(reason)) || reason);
      return;
    }
    // Both halves have ended it.
    if (code === undefined) return;
    const meaning = meaningOf(code, this.#link);
    if (meaning instanceof SessionLost) user.lost(this, meaning);
    else if (meaning) user.aborted(this, meaning);
    else if (code === ErrorCode.CANCEL || code === ErrorCode.NO_ERROR)
      user.aborted(this, new Error(`${far} went away`));
    else user.aborted(this, new PlaneEnded(`stream was reset with ${codeName(code)}`));
  }

  #rejectMark(): void {
    this.#user?.aborted(this, new PlaneEnded(`${this.#link.peer} sent a mark that cannot be read`));
    this.#reset(ErrorCode.PROTOCOL_ERROR);
  }

  #reset(code: number): void {
    this.#ended = true;
    this.#stream.reset(code);
  }
}
