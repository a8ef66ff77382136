/**
 * What one half tells the other besides bytes. Every field is a position: a number of bytes since the tunnel began. A mark replaces all
 * earlier ones of the same half.
 */
export interface Mark {
  /** How many of the other half's bytes the socket here has taken. One more once it has seen the other half's end, too. */
  readonly taken: number;
  /** The position of this half's own end: how many bytes it sends in all. Unset until it knows. */
  readonly final?: number;
  /** This half waits until the other one has taken the bytes before this position. The other half should say at once when it has. */
  readonly ask?: number;
}

/** The first byte of a mark says which positions follow `taken`. */
const HAS_FINAL = 1;
const HAS_ASK = 2;
const POSITION_BYTES = 6;

/** The length of a mark, by its first byte. */
const MARK_BYTES: readonly (number | undefined)[] = [7, 13, 13, 19];

/** The payload of a mark's frame: its first byte, then `taken` and each position that it has, in 6 bytes. */
export function encodeMark({ taken, final, ask }: Mark): Buffer {
  const has = (final === undefined ? 0 : HAS_FINAL) | (ask === undefined ? 0 : HAS_ASK);
  const bytes = Buffer.allocUnsafe(MARK_BYTES[has] as number);
  bytes[0] = has;
  putPosition(bytes, 1, taken);
  if (final !== undefined) putPosition(bytes, 1 + POSITION_BYTES, final);
  if (ask !== undefined) putPosition(bytes, bytes.length - POSITION_BYTES, ask);
  return bytes;
}

/** @returns undefined for a malformed mark */
export function readMark(bytes: Uint8Array): Mark | undefined {
  const has = bytes[0] ?? 0;
  if (bytes.length !== MARK_BYTES[has]) return undefined;
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

function positionAt(bytes: Uint8Array, at: number): number {
  let position = 0;
  for (let index = at; index < at + POSITION_BYTES; index++) position = 256 * position + (bytes[index] as number);
  return position;
}

/** A stream between the two halves, as one of them has it. It keeps the order of bytes, and that of marks. It may be lost at any time. */
export interface Carrier {
  readonly stream: CarrierStream;
  /** From now on, tells this half of the stream, beginning with what has arrived before. Call it once. */
  deliverTo(half: StreamUser): void;
  /**
   * Ends the stream. The half hears nothing more of it.
   * @param reason why the tunnel ends with it. Unset: the tunnel goes on elsewhere
   */
  drop(reason?: Error): void;
  /**
   * Call when the stream has closed.
   * @returns what that means: that the tunnel has ended, or that it has lost this way. Undefined if both halves have ended the stream
   */
  closed(code: number | undefined, reason: Error | undefined): Loss | undefined;
}

/** Why a stream is gone, and whether the tunnel has ended with it. */
export interface Loss {
  readonly reason: Error;
  readonly ends: boolean;
}

/** What a half asks of the stream: part of `Http2Stream` in libs/wire. */
interface CarrierStream {
  /** Queues the bytes, however many wait already. `StreamUser.onWritable` follows once all have left. */
  write(bytes: Uint8Array): void;
  /** Bytes that have not left. */
  readonly pending: number;
  /** Calls `next.writeMore` when it is this stream's turn on its link. */
  awaitTurn(next: { writeMore(): void }): void;
  /** Sends a mark, which overtakes bytes that wait. */
  mark(payload: Uint8Array): void;
  /** Counts bytes as read, so the other side may send as many again. @returns whether a frame tells it now, with which a mark can leave */
  consume(bytes: number): boolean;
  /** Ends the stream after this mark, because both halves have said everything. Nobody waits for it, so it may leave with other frames. */
  endLate(mark?: Uint8Array): void;
}

/** What the stream tells the half: `StreamHandler` in libs/wire. */
export interface StreamUser {
  onData(bytes: Uint8Array): void;
  onMark(payload: Uint8Array): void;
  /** The other half has said everything. */
  onEnd(): void;
  /** All bytes have left. */
  onWritable(): void;
  onClose(code: number | undefined, reason: Error | undefined): void;
}

/** Where a half stands, as an attach says it. */
export interface Position extends Mark {
  /** The bytes before this position have arrived, so the other half goes on sending here. */
  readonly received: number;
}

/** What the gateway's half sends to attach a new carrier. */
export interface AttachPosition extends Position {
  /** Counts up. The agent rejects a number that is not higher than all before it. */
  readonly number: number;
}

/** The same as it travels, with the proof that the gateway may attach. The agent finds the tunnel by it. */
export interface AttachClaim extends AttachPosition {
  readonly secret: string;
}

/** What the agent's half answers. */
export interface AttachAnswer extends Position {
  /** The position of the first byte that it sends on the new carrier. */
  readonly from: number;
}

interface RefusalOptions extends ErrorOptions {
  readonly final: boolean;
  readonly ordinary?: boolean;
}

/** Start of a refusal's text that says why the tunnel has ended. */
export const ENDED_TEXT = 'the tunnel has ended: ';

/** Why an attach is refused. */
export class AttachRefused extends Error {
  override readonly name = 'AttachRefused';
  /** Whether the tunnel has ended, so that no other attach can succeed. */
  readonly final: boolean;
  /** Whether this is expected: the tunnel has just ended, or two attaches have crossed. Anything else should be investigated. */
  readonly ordinary: boolean;

  constructor(message: string, { final, ordinary = false, ...options }: RefusalOptions) {
    super(message, options);
    this.final = final;
    this.ordinary = ordinary;
  }
}

/** Says in a dial that its tunnel should be resumable (docs/RESUME.md). */
export interface ResumeOffer {
  /** Whether the gateway's half is in the process at the other side of this link, and not behind a hub that passes it on. */
  readonly halfAtPeer: boolean;
  /** Names the gateway's process: 16 hexadecimal digits. */
  readonly gatewayInstance?: string | undefined;
}

/** What an agent answers to a dial whose tunnel can be resumed. */
export interface ResumeTicket {
  /** Names the agent's process: 16 hexadecimal digits. No other process knows the tunnel. */
  readonly instance: string;
  /** Needed to attach: 32 hexadecimal digits. */
  readonly secret: string;
}

/** The answer to a dial whose tunnel can be resumed, as the gateway uses it. */
export interface Resumption {
  readonly ticket: ResumeTicket;
  /** The stream of the answer. Who takes it leaves the answer's `end` alone from then on. */
  readonly carrier: Carrier;
}
