import type { Socket } from 'node:net';
import { onceClosed } from '@isthmus/runtime';
import {
  type Carrier,
  type CarrierUser,
  CUT_BY,
  type CutBy,
  HungUp,
  LinkReset,
  type Mark,
  PlaneEnded,
  SessionLost,
  type TunnelEnd,
} from '@isthmus/tunnel';
import {
  codeName,
  type DuplexStream,
  ErrorCode,
  Http2Link,
  type Http2LinkOptions,
  type Http2Stream,
  type PendingStream,
  StreamError,
  type StreamHandler,
} from '@isthmus/wire';
import { TENANT_FIELD } from './head.ts';

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
function endingCode(reason: Error): number {
  if (!(reason instanceof PlaneEnded)) return ErrorCode.CANCEL;
  return reason.by === 'path' ? BY_PLANE : CUT + CUT_BY.indexOf(reason.by);
}

/** Ends the tunnels of a link, also those that could be resumed elsewhere. */
export function cutStreams(streams: Iterable<Http2Stream>, cut: PlaneEnded): void {
  for (const stream of [...streams]) stream.reset(endingCode(cut), cut);
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

/** Makes a stream without a half a Duplex. @param closed called once it is over, and its last byte was read */
export function asDuplex(pending: PendingStream, closed: (stream: Http2Stream) => void): DuplexStream {
  const { stream } = pending;
  const duplex = pending.asDuplex();
  // The splice has its own listener. This one serves before and after it.
  return duplex.on('error', ignore).on('close', () => closed(stream));
}

function ignore(): void {}

/** A tunnel's end on a link, of a tunnel that ends with what carries it. */
export function endOfStream(stream: DuplexStream, link: CarrierLink): TunnelEnd {
  return {
    stream,
    halfOpen: true,
    abort: (reason) => stream.close(endingCode(reason)),
    explain: (failure) => explained(failure, link),
  };
}

/**
 * The end on a link of a tunnel that its two ends can resume. It is used in one of two ways: by a hub, which passes on bytes and marks, or
 * by the tunnel's own end, as a carrier.
 */
export class ResumableEnd implements TunnelEnd {
  readonly halfOpen = true;
  readonly #pending: PendingStream;
  readonly #link: CarrierLink;
  readonly #halfAtPeer: boolean;
  #duplex: DuplexStream | undefined;
  #left: (() => void) | undefined;

  /** @param halfAtPeer see `StreamCarrier` */
  constructor(pending: PendingStream, link: CarrierLink, halfAtPeer: boolean) {
    this.#pending = pending;
    this.#link = link;
    this.#halfAtPeer = halfAtPeer;
  }

  get stream(): DuplexStream {
    return this.#duplex ?? this.#takeAsDuplex();
  }

  get marks(): DuplexStream {
    return this.stream;
  }

  /** From now on it is a hub's, and no carrier any more. */
  #takeAsDuplex(): DuplexStream {
    const duplex = asDuplex(this.#pending, this.#link.closed);
    if (this.#left) duplex.on('close', this.#left);
    this.#duplex = duplex;
    return duplex;
  }

  whenLeft(left: () => void): void {
    this.#left = left;
    if (this.#duplex) onceClosed(this.#duplex, left);
  }

  abort(reason: Error): void {
    const lost = reason instanceof SessionLost && codeOfLoss(reason);
    this.stream.close(lost || endingCode(reason));
  }

  explain(failure: Error): Error {
    return ownLoss(failure, this.#halfAtPeer) ?? explained(failure, this.#link);
  }

  /** Takes the stream over as a carrier. From now on the half owns it. @throws Error if it was taken as a Duplex */
  carrier(): StreamCarrier {
    if (this.#duplex) throw new Error('the stream is taken: nothing before the half of a tunnel may use end.stream');
    this.#left?.();
    return new StreamCarrier(this.#pending, this.#link, this.#halfAtPeer);
  }
}

/**
 * Returns what the loss of a link means for the tunnel if its other end is not at the other side: how a process between the two was lost says
 * nothing about it. Undefined for all other failures.
 */
function ownLoss(failure: Error, halfAtPeer: boolean): SessionLost | undefined {
  const lost = failure instanceof HungUp || failure instanceof LinkReset;
  return lost && !halfAtPeer ? new SessionLost(failure.message, { cause: failure }) : undefined;
}

function codeOfLoss(reason: SessionLost): number {
  if (reason instanceof HungUp) return HUNG_UP;
  return reason instanceof LinkReset ? RESET : WAY_LOST;
}

/** The payload of a mark's frame: a byte that says which positions follow `taken`, then `taken` and each of them in 6 bytes. */
const HAS_FINAL = 1;
const HAS_ASK = 2;
const POSITION_BYTES = 6;

export function encodeMark({ taken, final, ask }: Mark): Buffer {
  const has = (final === undefined ? 0 : HAS_FINAL) | (ask === undefined ? 0 : HAS_ASK);
  const bytes = Buffer.allocUnsafe(lengthOf(has));
  bytes[0] = has;
  let at = bytes.writeUIntBE(taken, 1, POSITION_BYTES);
  if (final !== undefined) at = bytes.writeUIntBE(final, at, POSITION_BYTES);
  if (ask !== undefined) bytes.writeUIntBE(ask, at, POSITION_BYTES);
  return bytes;
}

/** @returns undefined for a malformed mark */
export function readMark(bytes: Buffer): Mark | undefined {
  const has = bytes[0] ?? 0;
  if (has > (HAS_FINAL | HAS_ASK) || bytes.length !== lengthOf(has)) return undefined;
  const mark: { -readonly [Key in keyof Mark]: Mark[Key] } = { taken: bytes.readUIntBE(1, POSITION_BYTES) };
  if (has & HAS_FINAL) mark.final = bytes.readUIntBE(1 + POSITION_BYTES, POSITION_BYTES);
  if (has & HAS_ASK) mark.ask = bytes.readUIntBE(bytes.length - POSITION_BYTES, POSITION_BYTES);
  return mark;
}

function lengthOf(has: number): number {
  return 1 + POSITION_BYTES * (1 + (has & HAS_FINAL ? 1 : 0) + (has & HAS_ASK ? 1 : 0));
}

/** What the carriers on a link need of it. */
export interface CarrierLink {
  /** What is at the other side, for error texts. */
  readonly peer: string;
  /** What is at the other ends of the tunnels. */
  readonly far: 'caller' | 'destination';
  /** Called once no further frame of a stream arrives or leaves. */
  readonly closed: (stream: Http2Stream) => void;
}

/** A stream of a link as the carrier of a tunnel that can be resumed. */
export class StreamCarrier implements Carrier, StreamHandler {
  readonly #stream: Http2Stream;
  readonly #link: CarrierLink;
  readonly #halfAtPeer: boolean;
  /** The handler of the stream until `deliverTo`. */
  #pending: PendingStream | undefined;
  #user: CarrierUser | undefined;
  /** Whether the half has ended the stream. It then hears nothing more. */
  #ended = false;

  /** @param halfAtPeer whether the tunnel's other half is in the process at the other side of the link, and not behind a hub or gateway */
  constructor(pending: PendingStream, link: CarrierLink, halfAtPeer: boolean) {
    this.#stream = pending.stream;
    this.#pending = pending;
    this.#link = link;
    this.#halfAtPeer = halfAtPeer;
  }

  // What the half asks for.

  deliverTo(user: CarrierUser): void {
    const pending = this.#pending;
    this.#user = user;
    this.#pending = undefined;
    pending?.giveTo(this);
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
      user.lost(this, ownLoss(reason, this.#halfAtPeer) ?? reason);
      return;
    }
    const meaning = meaningOf(code, this.#link);
    if (meaning instanceof SessionLost) user.lost(this, meaning);
    else if (meaning) user.aborted(this, meaning);
    else if (code === ErrorCode.CANCEL || code === ErrorCode.NO_ERROR)
      user.aborted(this, new Error(`${far} went away`));
    else if (code !== undefined) user.aborted(this, new PlaneEnded(`stream was reset with ${codeName(code)}`));
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
  limits: LinkLimits = { rules: { groupField: TENANT_FIELD } },
): Http2Link {
  const lost = (reason: NodeJS.ErrnoException) => {
    const Lost = lossOf(reason.code, mayHaveDied);
    return new Lost(`${peer}: ${reason.message}`, {
      cause: reason,
      ...(Lost === HungUp && hangsUp && { by: hangsUp }),
    });
  };
  return new Http2Link({ role, socket, lost, ...limits });
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
