/**
 * How a tunnel over packets closes, as data. There is no half-close. The serving side closes with CLOSE_RSP and is done. The dialling
 * side closes with CLOSE_REQ and waits for the CLOSE_RSP, which comes after the rest of its data.
 */

/** `serving`: an agent, or a gateway towards its callers. `dialling`: a hub towards a Go agent. */
export type PacketSide = 'serving' | 'dialling';

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

export interface ClosingStep {
  readonly next: ClosingState;
  /** Send our close packet. */
  readonly tell: boolean;
  /** Take nothing more from the peer. */
  readonly eof: boolean;
}

const TELL_AND_CLOSE: ClosingStep = { next: 'closed', tell: true, eof: true };
const CLOSE: ClosingStep = { next: 'closed', tell: false, eof: true };
const STAY_CLOSED: ClosingStep = { next: 'closed', tell: false, eof: false };
const CLOSED = { end: STAY_CLOSED, 'peer-close': STAY_CLOSED, abort: STAY_CLOSED, lost: STAY_CLOSED };

const CLOSING: Readonly<Record<PacketSide, Record<ClosingState, Record<ClosingEvent, ClosingStep>>>> = {
  serving: {
    open: {
      end: TELL_AND_CLOSE,
      // Callers wait for this CLOSE_RSP, up to 10 s in konnectivity-client, and read nothing after it.
      'peer-close': TELL_AND_CLOSE,
      abort: TELL_AND_CLOSE,
      lost: CLOSE,
    },
    // Never reached: a CLOSE_RSP has no answer.
    closing: { end: CLOSE, 'peer-close': CLOSE, abort: CLOSE, lost: CLOSE },
    closed: CLOSED,
  },
  dialling: {
    open: {
      end: { next: 'closing', tell: true, eof: false },
      'peer-close': CLOSE,
      abort: TELL_AND_CLOSE,
      lost: CLOSE,
    },
    closing: { end: { next: 'closing', tell: false, eof: false }, 'peer-close': CLOSE, abort: CLOSE, lost: CLOSE },
    closed: CLOSED,
  },
};

export function closingStep(side: PacketSide, state: ClosingState, event: ClosingEvent): ClosingStep {
  return CLOSING[side][state][event];
}
