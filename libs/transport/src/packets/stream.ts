import { Duplex } from 'node:stream';
import type { Packet } from '@isthmus/proto';
import { destroyOnceRead, pushCompact, Waiting } from '@isthmus/runtime';
import { PlaneEnded, SessionLost, TUNNEL } from '@isthmus/tunnel';
import { TRANSPORT } from '../defaults.ts';
import type { PacketMux } from './mux.ts';

// How a tunnel over packets closes, as data. There is no half-close. The serving side closes with CLOSE_RSP and is done. The dialling
// side closes with CLOSE_REQ and waits for the CLOSE_RSP, which comes after the rest of its data.

/** `agent`: ours at a Go server, which serves. `hub`: towards a Go agent, which dials. */
export type PacketRole = 'agent' | 'hub';

/** `closing`: our close was sent. The peer's close is still to come, and its data is still taken. */
export type ClosingState = 'open' | 'closing' | 'closed';

export type ClosingEvent =
  /** All our data was sent. */
  | 'end'
  /** The peer's CLOSE_REQ or CLOSE_RSP. */
  | 'peer-close'
  /** Our side gives up at once. */
  | 'abort'
  /** The channel has ended. */
  | 'lost';

interface ClosingStep {
  readonly next: ClosingState;
  /** Send our close packet. */
  readonly tell: boolean;
  /** Take nothing more from the peer. */
  readonly eof: boolean;
}

/** A peer that closes waits for the CLOSE_RSP, up to 10 s in konnectivity-client, and reads nothing after it. The CLOSE_RSP has no answer. */
export function closingStep(role: PacketRole, state: ClosingState, event: ClosingEvent): ClosingStep {
  if (state === 'closed') return { next: 'closed', tell: false, eof: false };
  const next = role === 'hub' && event === 'end' ? 'closing' : 'closed';
  const answers = role === 'agent' || event !== 'peer-close';
  return { next, tell: state === 'open' && event !== 'lost' && answers, eof: next === 'closed' };
}

/** Counts what waits for the reader of one tunnel. */
export class Unread {
  /** Ends the tunnel after its reader's patience. */
  readonly end: (reason: Error) => void;
  readonly #mux: PacketMux;
  /** Bytes that wait within the share. */
  #admitted = 0;
  /** Bytes that wait and are withheld from the window. */
  withheld = 0;
  /** Whether the reader has taken something since the last check. */
  #moved = true;
  /** For how many checks it has taken nothing while nobody on its stream could send. */
  #still = 0;

  constructor(mux: PacketMux, end: (reason: Error) => void) {
    this.#mux = mux;
    this.end = end;
  }

  /** In bytes. */
  get waiting(): number {
    return this.withheld + this.#admitted;
  }

  /** This many bytes arrived and have to wait. */
  put(bytes: number): void {
    this.#mux.waits(this);
    if (this.withheld === 0 && this.#mux.admit(this.#admitted, bytes)) this.#admitted += bytes;
    else {
      this.withheld += bytes;
      this.#mux.withhold(bytes);
    }
  }

  /** The reader took this many of them. */
  take(bytes: number): void {
    this.#moved = true;
    const released = Math.min(this.withheld, bytes);
    const dismissed = Math.min(this.#admitted, bytes - released);
    this.withheld -= released;
    this.#admitted -= dismissed;
    this.#mux.dismiss(dismissed);
    if (this.waiting === 0) this.#mux.waitsNoMore(this);
    if (released > 0) this.#mux.release(released);
  }

  /**
   * Its patience runs while another one holds up the stream, too. What the stream moves while some is withheld counts back.
   * @returns for how many checks it has taken nothing while nobody on its stream could send
   */
  look(heldUp: boolean): number {
    if (this.#moved) this.#still = 0;
    else this.#still = Math.max(0, this.#still + (heldUp ? 1 : -1));
    this.#moved = false;
    return this.#still;
  }
}

const SESSION_LOST = 'session lost';

/** What peers say about a tunnel that they no longer know. Go's peers have the first two. */
const LOST_TEXTS: ReadonlySet<string> = new Set(['unrecognized connectID', 'Unknown connectID', SESSION_LOST]);

/** The start of the text of a close by the plane itself, as opposed to an error of the destination. */
const BY_PLANE = 'ended by the plane: ';

/** The bytes of one tunnel over packets, which have no half-close. */
export class PacketStream extends Duplex {
  readonly connectID: bigint;
  readonly #mux: PacketMux;
  readonly #unread: Unread;
  #state: ClosingState = 'open';
  /** Data that arrived while the reader wanted no more. */
  readonly #waiting = new Waiting();
  #wanted = true;
  /** Whether nothing more follows what waits, except the reader's end. */
  #ended = false;
  /** Why the peer closed the tunnel, unless it ended in order. */
  #failure: Error | undefined;
  #unsent: Uint8Array | undefined;
  #sent: (() => void) | undefined;

  constructor(connectID: bigint, mux: PacketMux) {
    super({
      readableHighWaterMark: TRANSPORT.packetsReadAheadBytes,
      writableHighWaterMark: TRANSPORT.packetsDataBytes,
    });
    this.connectID = connectID;
    this.#mux = mux;
    // It keeps the peer from sending faster than the reader reads.
    this.#unread = new Unread(mux, (reason) => this.destroy(reason));
    // The tunnel has its own listener. This one is for before and after it.
    this.on('error', () => {});
  }

  /** Call with each DATA packet. */
  receive(data: Uint8Array): void {
    if (this.#state === 'closed' || this.destroyed || data.length === 0) return;
    if (this.#wanted) this.#wanted = pushCompact(this, data);
    else {
      this.#waiting.push(data);
      this.#unread.put(data.length);
    }
  }

  /** Call when the peer closed the tunnel. With an error text, the peer never knew the tunnel or lost it. */
  receiveClose(error = ''): void {
    this.#failure = failureOf(error);
    this.#step('peer-close');
    if (this.#failure instanceof PlaneEnded) this.destroy(this.#failure);
  }

  /** Call when the channel has ended. A tunnel that was closed before still delivers what arrived. */
  lost(reason: Error): void {
    if (this.#state === 'closed') return;
    this.#step('lost');
    this.destroy(reason);
  }

  override _read(): void {
    this.#wanted = true;
    while (this.#wanted) {
      const piece = this.#waiting.shift();
      if (!piece) break;
      this.#wanted = this.push(piece);
      this.#unread.take(piece.length);
    }
    this.#endReader();
  }

  override _write(chunk: Uint8Array, _encoding: BufferEncoding, sent: () => void): void {
    if (this.#state === 'closed' || chunk.length === 0) {
      sent();
      return;
    }
    this.#unsent = chunk;
    this.#sent = sent;
    this.#mux.queue(this);
  }

  /** A serving side is done once a slow peer has made room for the close, so the tunnel counts until then. */
  override _final(done: () => void): void {
    this.#step('end', undefined, done);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#mux.leave(this);
    this.#step('abort', closingText(error));
    this.#waiting.clear();
    this.#unread.take(this.#unread.waiting);
    done(error);
  }

  /** It is its turn. */
  sendOne(): void {
    const unsent = this.#unsent as Uint8Array;
    const most = this.#mux.role === 'agent' ? TRANSPORT.packetsAgentDataBytes : TRANSPORT.packetsDataBytes;
    const data = unsent.subarray(0, most);
    this.#mux.send({ type: 'DATA', connectID: this.connectID, error: '', data });
    if (data.length < unsent.length) {
      this.#unsent = unsent.subarray(most);
      this.#mux.queue(this);
    } else {
      this.#release();
    }
  }

  /** Calls the writer back: its chunk was sent, or nobody wants it any longer. */
  #release(): void {
    const sent = this.#sent;
    this.#unsent = undefined;
    this.#sent = undefined;
    sent?.();
  }

  /** Ends the reader once it has everything that waited. */
  #endReader(): void {
    if (!this.#ended || this.#waiting.length > 0) return;
    this.#ended = false;
    if (this.#failure) destroyOnceRead(this, this.#failure);
    else this.push(null);
  }

  /** @param done called when nothing more is sent, or once a dialling side has said that it closes */
  #step(event: ClosingEvent, error?: string, done?: () => void): void {
    const { next, tell, eof } = closingStep(this.#mux.role, this.#state, event);
    const waits = tell && next === 'closed' && event === 'end';
    this.#state = next;
    if (tell) this.#mux.post(closePacket(this.#mux.role, this.connectID, error), waits ? done : undefined);
    if (!waits) done?.();
    if (!eof) return;
    this.#ended = true;
    this.#endReader();
    this.#mux.leave(this);
    this.#release();
  }
}

/** Returns why the peer closed the tunnel: the error of `closingText`, or undefined for an orderly close. @param told may be megabytes long */
function failureOf(told: string): Error | undefined {
  if (told === '') return undefined;
  const text = told.slice(0, TUNNEL.errorTextChars);
  if (LOST_TEXTS.has(text)) return new PlaneEnded(`the peer has lost the tunnel: ${text}`);
  if (text.startsWith(BY_PLANE)) return new PlaneEnded(text.slice(BY_PLANE.length));
  return new Error(`the peer closed the tunnel: ${text}`);
}

/** The text of a close, which the peer's `failureOf` reads. */
export function closingText(error: Error | null): string | undefined {
  if (error instanceof SessionLost) return SESSION_LOST;
  return error instanceof PlaneEnded ? `${BY_PLANE}${error.message}` : error?.message;
}

export function closePacket(role: PacketRole, connectID: bigint, error = ''): Packet {
  return role === 'agent' ? { type: 'CLOSE_RSP', connectID, error } : { type: 'CLOSE_REQ', connectID };
}
