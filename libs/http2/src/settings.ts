import { ConnectionError, DEFAULT_FRAME, ErrorCode, MAX_WINDOW } from './codes.ts';

/** The limits that one side of a connection sets for the other (RFC 9113 section 6.5.2). */
export interface Settings {
  /** Largest compression table of the other side, in bytes. */
  readonly headerTableSize: number;
  readonly enablePush: boolean;
  /** Most streams that the other side may have open. */
  readonly maxConcurrentStreams: number;
  /** Initial window of a new stream, in bytes. */
  readonly initialWindowSize: number;
  /** The longest payload of a frame, in bytes. */
  readonly maxFrameSize: number;
  /** The longest list of header fields, in bytes. */
  readonly maxHeaderListSize: number;
}

/** In effect until the first SETTINGS frame arrives. */
export const DEFAULT_SETTINGS: Settings = {
  headerTableSize: 4096,
  enablePush: true,
  maxConcurrentStreams: Number.POSITIVE_INFINITY,
  initialWindowSize: 65_535,
  maxFrameSize: DEFAULT_FRAME,
  maxHeaderListSize: Number.POSITIVE_INFINITY,
};

const IDS: Readonly<Record<keyof Settings, number>> = {
  headerTableSize: 1,
  enablePush: 2,
  maxConcurrentStreams: 3,
  initialWindowSize: 4,
  maxFrameSize: 5,
  maxHeaderListSize: 6,
};

const NAMES = new Map(Object.entries(IDS).map(([name, id]) => [id, name as keyof Settings]));

/** Settings as pairs of id and value. */
export function settingsEntries(settings: Partial<Settings>): [number, number][] {
  return Object.entries(settings).map(([name, value]) => [IDS[name as keyof Settings], Number(value)]);
}

/**
 * Applies a SETTINGS frame's payload. Unknown settings are ignored, as the RFC requires.
 * @throws ConnectionError for a value out of range
 */
export function readSettings(payload: Buffer): Partial<Settings> {
  if (payload.length % 6 !== 0)
    throw new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, 'SETTINGS with a length that is no multiple of 6');
  const changes: Record<string, number | boolean> = {};
  for (let at = 0; at < payload.length; at += 6) {
    const name = NAMES.get(payload.readUInt16BE(at));
    const value = payload.readUInt32BE(at + 2);
    if (name) changes[name] = name === 'enablePush' ? check(name, value) === 1 : check(name, value);
  }
  return changes;
}

function check(name: keyof Settings, value: number): number {
  if (name === 'enablePush' && value > 1)
    throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, `SETTINGS: ENABLE_PUSH ${value}`);
  if (name === 'initialWindowSize' && value > MAX_WINDOW)
    throw new ConnectionError(
      ErrorCode.FLOW_CONTROL_ERROR,
      `SETTINGS: INITIAL_WINDOW_SIZE of ${value} bytes is above 2^31 - 1`,
    );
  if (name === 'maxFrameSize' && (value < DEFAULT_FRAME || value > 2 ** 24 - 1))
    throw new ConnectionError(
      ErrorCode.PROTOCOL_ERROR,
      `SETTINGS: MAX_FRAME_SIZE of ${value} bytes is not between 2^14 and 2^24 - 1`,
    );
  return value;
}
