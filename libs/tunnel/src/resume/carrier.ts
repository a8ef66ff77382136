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

/**
 * A stream between the two halves, as one of them uses it: `data` and `mark` send here, and in `CarrierUser` they receive. It keeps the order of
 * bytes, and that of marks, which overtake bytes that wait. It may be lost at any time.
 */
export interface Carrier {
  /** From now on, delivers to this half whatever arrives, beginning with what has arrived before. Call it once. */
  deliverTo(user: CarrierUser): void;
  /** Queues the bytes, however many wait already. `CarrierUser.drained` follows once all have left. */
  data(bytes: Uint8Array): void;
  /** Whether all bytes have left. */
  readonly drained: boolean;
  /** Calls `next.writeMore` when it is this stream's turn on its link. */
  awaitTurn(next: { writeMore(): void }): void;
  mark(mark: Mark): void;
  /** Counts bytes as read, so the other side may send as many again. @returns whether a frame tells it now, with which a mark can leave */
  consume(bytes: number): boolean;
  /** Ends the stream after this mark, because both halves have said everything. Nobody waits for it, so it may leave with other frames. */
  end(last?: Mark): void;
  /** Ends the stream, but not the tunnel, which goes on elsewhere. */
  drop(): void;
  /** Ends the tunnel. */
  abort(reason: Error): void;
}

/** A half, as its carrier calls it. */
export interface CarrierUser {
  data(carrier: Carrier, bytes: Uint8Array): void;
  mark(carrier: Carrier, mark: Mark): void;
  /** All bytes have left. */
  drained(carrier: Carrier): void;
  /** The other half has said everything. */
  ended(carrier: Carrier): void;
  /** The other half ended the tunnel. */
  aborted(carrier: Carrier, reason: Error): void;
  /** The carrier is gone, but nobody has ended the tunnel. */
  lost(carrier: Carrier, reason: Error): void;
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
  readonly end: {
    /** Makes the stream of the answer a carrier. Call it once, and leave the answer's `end` alone from then on. */
    carrier(): Carrier;
  };
}
