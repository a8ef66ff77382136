import { codeName, ErrorCode, type Http2Stream, type PendingStream, type StreamFace } from '@isthmus/http2';
import { type Carrier, type CarrierUser, HungUp, LinkReset, type Mark, PlaneEnded, SessionLost } from '@isthmus/tunnel';
import { encodeMark, readMark } from './marks.ts';
import { cutOf, endingCode, HUNG_UP, LOST, RESET } from './tunnel-end.ts';

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
export class StreamCarrier implements Carrier, StreamFace {
  readonly #stream: Http2Stream;
  readonly #link: CarrierLink;
  readonly #direct: boolean;
  /** The face of the stream until `deliverTo`. */
  #pending: PendingStream | undefined;
  #user: CarrierUser | undefined;
  /** Whether the half has ended the stream. It then hears nothing more. */
  #ended = false;

  /** @param direct whether the tunnel's other end is at the other side of the link, and not behind a hub */
  constructor(pending: PendingStream, link: CarrierLink, direct: boolean) {
    this.#stream = pending.stream;
    this.#pending = pending;
    this.#link = link;
    this.#direct = direct;
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

  get flowing(): boolean {
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
    this.#reset(LOST);
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
    this.#user?.flowing(this);
  }

  onClose(code: number | undefined, reason: Error | undefined): void {
    const { peer, far, closed } = this.#link;
    const user = this.#user;
    this.#stream.release();
    closed(this.#stream);
    if (this.#ended || !user) return;
    if (reason) user.lost(this, this.#isOfHub(reason) ? new SessionLost(reason.message, { cause: reason }) : reason);
    else if (code === LOST) user.lost(this, new SessionLost(`${peer} has lost the other end of the tunnel`));
    else if (code === HUNG_UP) user.lost(this, new HungUp(`${peer} has lost the other end of the tunnel: it hung up`));
    else if (code === RESET)
      user.lost(this, new LinkReset(`${peer} has lost the other end of the tunnel: it was reset`));
    else if (code === ErrorCode.CANCEL || code === ErrorCode.NO_ERROR)
      user.aborted(this, new Error(`${far} went away`));
    else if (code !== undefined)
      user.aborted(this, cutOf(code, peer) ?? new PlaneEnded(`stream was reset with ${codeName(code)}`));
  }

  /** Whether the reason tells how a hub was lost. That says nothing about the tunnel's other end. */
  #isOfHub(reason: Error): boolean {
    return !this.#direct && (reason instanceof HungUp || reason instanceof LinkReset);
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
