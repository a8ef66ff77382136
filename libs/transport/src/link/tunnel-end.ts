import type { Socket } from 'node:net';
import {
  type Carrier,
  type CarrierUser,
  type CutBy,
  HungUp,
  type Joint,
  type JointOptions,
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
  failureOf,
  Http2Link,
  type Http2LinkOptions,
  type Http2Stream,
  type PendingStream,
  type StreamHandler,
} from '@isthmus/wire';
import { TENANT_FIELD } from './dial-heads.ts';
import { Relay, type RelayedEnd } from './relay.ts';
import { type CarrierLink, codeOfLoss, endingCode, explained, meaningOf, ownLoss, WAY_LOST } from './resets.ts';

/** The half of a tunnel behind its end on a link. */
interface HalfBehind {
  /** Whether it is in the process at the other side of the link, and not behind a hub or gateway. */
  readonly atPeer: boolean;
}

/** Makes a stream without a half a Duplex. @param closed called once it is over, and its last byte was read */
export function asDuplex(pending: PendingStream, closed: (stream: Http2Stream) => void): DuplexStream {
  const { stream } = pending;
  const duplex = pending.asDuplex();
  // Who joins it to another has its own listener. This one serves before and after it.
  return duplex.on('error', ignore).on('close', () => closed(stream));
}

function ignore(): void {}

/**
 * A tunnel's end on a link. It is used in one of three ways: joined with another one, as a hub does (`Relay`); as a Duplex, if the other end is no
 * stream of a link; or by the tunnel's own half, as a carrier.
 */
export class StreamEnd implements TunnelEnd, RelayedEnd {
  readonly halfOpen = true;
  readonly pending: PendingStream;
  readonly #link: CarrierLink;
  readonly #half: HalfBehind | undefined;
  #duplex: DuplexStream | undefined;
  #leaving: (() => void)[] = [];
  #hasLeft = false;

  /** @param half unset for a tunnel that ends with what carries it */
  constructor(pending: PendingStream, link: CarrierLink, half?: HalfBehind) {
    this.pending = pending;
    this.#link = link;
    this.#half = half;
  }

  get stream(): DuplexStream {
    this.#duplex ??= asDuplex(this.pending, () => this.over());
    return this.#duplex;
  }

  get resumable(): boolean {
    return this.#half !== undefined;
  }

  join(destination: TunnelEnd, options: JointOptions): Joint | undefined {
    const streams = destination instanceof StreamEnd && !this.#duplex && !destination.#duplex;
    return streams ? new Relay(this, destination, options) : undefined;
  }

  whenLeft(left: () => void): void {
    if (this.#hasLeft) left();
    else this.#leaving.push(left);
  }

  abort(reason: Error): void {
    this.stream.close(this.codeOf(reason));
  }

  explain(failure: Error): Error {
    const lost = this.#half && ownLoss(failure, this.#half.atPeer);
    return lost ?? explained(failure, this.#link);
  }

  codeOf(reason: Error): number {
    return this.#half && reason instanceof SessionLost ? codeOfLoss(reason) : endingCode(reason);
  }

  meaningOf(code: number, lost: Error | undefined): Error | undefined {
    const failure = lost ?? failureOf(code);
    return failure && this.explain(failure);
  }

  over(): void {
    this.#link.closed(this.pending.stream);
    this.#leave();
  }

  #leave(): void {
    this.#hasLeft = true;
    for (const left of this.#leaving.splice(0)) left();
  }

  /** Takes the stream over as a carrier. From now on the half owns it. @throws Error if it was taken as a Duplex */
  carrier(): StreamCarrier {
    if (this.#duplex) throw new Error('the stream is taken: nothing before the half of a tunnel may use end.stream');
    this.#leave();
    return new StreamCarrier(this.pending, this.#link, this.#half?.atPeer ?? false);
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
      // Cut here, and not lost: no other carrier is to come.
      if (reason instanceof PlaneEnded && !(reason instanceof SessionLost)) user.aborted(this, reason);
      else user.lost(this, ownLoss(reason, this.#halfAtPeer) ?? reason);
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
