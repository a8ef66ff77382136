/**
 * What one half tells the other besides bytes. All are positions: counts of bytes since the tunnel began. A mark says all that earlier
 * ones of the same half did.
 */
export interface Mark {
  /** How much of the other half's bytes has been handed to the socket here; one more when its end has been, too. */
  readonly taken: number;
  /** How much this half sends in all, once it knows: its end. */
  readonly final?: number;
  /** It waits for the other half to take its bytes before this position, and to say so at once. */
  readonly ask?: number;
}

/** A stream between the two halves, as one of them uses it. It keeps order, and may be lost at any time. */
export interface Carrier {
  /** Tells the user what comes, and what came before. Call it once. */
  listen(user: CarrierUser): void;
  /** Accepts the bytes in any case. `CarrierUser.flowing` follows once they have left. */
  data(bytes: Uint8Array): void;
  /** Whether all bytes have left. */
  readonly flowing: boolean;
  /** Has `next` asked for more when it is this stream's turn on its link. */
  awaitTurn(next: { writeMore(): void }): void;
  mark(mark: Mark): void;
  /** Counts bytes as read: the other side may send as many again. @returns whether that is said now, so that a mark costs no write of its own */
  read(bytes: number): boolean;
  /** Everything has been said, both ways, with this mark. Nobody waits for it, so it may leave with what else goes this way. */
  end(last?: Mark): void;
  /** Nobody here reads it any more. The tunnel goes on elsewhere. */
  drop(): void;
  /** The tunnel ends. */
  abort(reason: Error): void;
}

/** What a carrier tells its half. */
export interface CarrierUser {
  data(carrier: Carrier, bytes: Uint8Array): void;
  mark(carrier: Carrier, mark: Mark): void;
  /** All bytes have left. */
  flowing(carrier: Carrier): void;
  /** The other half has said everything. */
  ended(carrier: Carrier): void;
  /** The other half ended the tunnel. */
  aborted(carrier: Carrier, reason: Error): void;
  /** The carrier is gone, and nobody meant that to be the tunnel's end. */
  lost(carrier: Carrier, reason: Error): void;
}

/** What lies beyond a half: the caller's socket, or the destination's. */
export interface Outer {
  /** Who uses what all halves may keep. */
  readonly tenant: string;
  /** Bytes of the other side. It calls `Half.take` as its socket takes them. */
  deliver(bytes: Uint8Array): void;
  /** The other side sends nothing more. */
  ended(): void;
  /** `Half.open` is true again. */
  flowing(): void;
  /** The other half has got everything from this side, and its end. */
  flushed(): void;
  /** Called once. @param error unset: both sides have ended, and each has got everything */
  over(error?: Error): void;
  /** Called once, when nothing needs the half any more; after `over`. */
  gone(): void;
}

/** Where a half stands. */
export interface Position extends Mark {
  /** Where the other half goes on sending: the bytes before this position have come. */
  readonly received: number;
}

/** What the gateway's half asks for with a new carrier. */
export interface AttachRequest extends Position {
  /** Counts up. A higher one fences a lower. */
  readonly number: number;
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

/** How the refusal of an attach begins if it tells why the tunnel has ended. */
export const ENDED_TEXT = 'the tunnel has ended: ';

/** Why an attach is refused. */
export class AttachRefused extends Error {
  override readonly name = 'AttachRefused';
  /** Whether the tunnel has ended, so that no other attach can succeed. */
  readonly final: boolean;
  /** Whether the tunnel has just ended, or two attaches have crossed. Anything else is worth a look. */
  readonly ordinary: boolean;

  constructor(message: string, { final, ordinary = false, ...options }: RefusalOptions) {
    super(message, options);
    this.final = final;
    this.ordinary = ordinary;
  }
}
