import { CODE, ConnectionError, FLAG, frame, MAX_FRAME, TYPE } from './frames.ts';

/** Settings (RFC 9113 section 6.5.2) that matter to a server which pushes nothing and packs no header fields. */
const ID = {
  ...{ ENABLE_PUSH: 2, MAX_CONCURRENT_STREAMS: 3, INITIAL_WINDOW_SIZE: 4, MAX_FRAME_SIZE: 5, MAX_HEADER_LIST_SIZE: 6 },
} as const;

/** A window's size until someone says otherwise, in bytes. */
export const DEFAULT_WINDOW = 65_535;

export const LARGEST_WINDOW = 2 ** 31 - 1;

/** What a peer's SETTINGS changed. */
export interface PeerSettings {
  readonly streamWindow?: number;
  readonly maxFrame?: number;
}

/** @throws ConnectionError for values that are not allowed */
export function readSettings(payload: Buffer): PeerSettings {
  if (payload.length % 6 !== 0) {
    throw new ConnectionError(CODE.FRAME_SIZE_ERROR, `SETTINGS of ${payload.length} bytes`);
  }
  let streamWindow: number | undefined;
  let maxFrame: number | undefined;
  for (let offset = 0; offset < payload.length; offset += 6) {
    const id = payload.readUInt16BE(offset);
    const value = payload.readUInt32BE(offset + 2);
    if (id === ID.ENABLE_PUSH) within(value, 0, 1, 'ENABLE_PUSH');
    if (id === ID.INITIAL_WINDOW_SIZE) {
      if (value > LARGEST_WINDOW) throw new ConnectionError(CODE.FLOW_CONTROL_ERROR, `a window of ${value} bytes`);
      streamWindow = value;
    }
    if (id === ID.MAX_FRAME_SIZE) maxFrame = within(value, MAX_FRAME, 2 ** 24 - 1, 'MAX_FRAME_SIZE');
  }
  return { ...(streamWindow !== undefined && { streamWindow }), ...(maxFrame !== undefined && { maxFrame }) };
}

function within(value: number, least: number, most: number, name: string): number {
  if (value >= least && value <= most) return value;
  throw new ConnectionError(CODE.PROTOCOL_ERROR, `${name} ${value}`);
}

/** Our SETTINGS. */
export function settingsFrame(ours: { streamWindow: number; maxStreams: number; maxFields: number }): Buffer {
  const payload = Buffer.alloc(18);
  const pairs = [
    [ID.MAX_CONCURRENT_STREAMS, ours.maxStreams],
    [ID.INITIAL_WINDOW_SIZE, ours.streamWindow],
    [ID.MAX_HEADER_LIST_SIZE, ours.maxFields],
  ] as const;
  pairs.forEach(([id, value], index) => {
    payload.writeUInt16BE(id, 6 * index);
    payload.writeUInt32BE(value, 6 * index + 2);
  });
  return frame(TYPE.SETTINGS, 0, 0, payload);
}

export const SETTINGS_ACK = frame(TYPE.SETTINGS, FLAG.ACK, 0, Buffer.alloc(0));
