/** What one half tells the other besides bytes. All are positions: counts of bytes since the tunnel began. */
export interface Mark {
  /** How much of the other half's bytes has been handed to the socket here; one more when its end has been, too. */
  readonly taken: number;
  /** How much this half sends in all, once it knows: its end. */
  readonly final?: number;
}

/** A stream between the two halves, as one of them uses it. It keeps order, and may be lost at any time. */
export interface Carrier {
  data(bytes: Uint8Array): void;
  mark(mark: Mark): void;
  /** Everything has been said, both ways. */
  end(): void;
  /** Nobody here reads it any more. The tunnel goes on elsewhere. */
  drop(): void;
  /** The tunnel ends. */
  abort(reason: Error): void;
}

/** What lies beyond a half: the caller's socket, or the destination's. */
export interface Outer {
  /** Bytes of the other side. It calls `Half.take` as its socket takes them. */
  deliver(bytes: Uint8Array): void;
  /** The other side sends nothing more. */
  end(): void;
  /** `Half.open` is true again. */
  writable(): void;
  /** Called once. @param error unset: both sides have ended, and each has got everything */
  over(error?: Error): void;
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

/** Why an attach is refused. */
export class AttachRefused extends Error {
  override readonly name = 'AttachRefused';
  /** Whether the tunnel has ended, so that no other attach can succeed. */
  readonly final: boolean;

  constructor(message: string, { final, ...options }: ErrorOptions & { readonly final: boolean }) {
    super(message, options);
    this.final = final;
  }
}
