import { PREFACE, settingsFrame, windowUpdateFrame } from '../frames.ts';
import type { Field } from '../section.ts';
import { DEFAULT_SETTINGS, type Settings } from '../settings.ts';
import type { Http2Stream } from '../stream/stream.ts';
import { CONNECTION_WINDOW } from './reading.ts';
import type { StreamRules, StreamSettings } from './streams.ts';

/** What the other side may do. */
export type PeerSettings = StreamSettings & Pick<Settings, 'maxFrameSize' | 'maxHeaderListSize'>;

export interface ConnectionOptions {
  readonly role: 'client' | 'server';
  readonly settings: PeerSettings;
  /** From `greeting`. Leaves with our first frame. At a server, that is the answer to the peer's SETTINGS, so the peer wakes up once. */
  readonly greeting: Buffer;
  readonly rules: StreamRules;
  /** Most bytes that may wait for a peer that asks (PING, SETTINGS, requests) and does not read. */
  readonly maxBacklog: number;
  /** When frames leave that were sent in this turn: `process.nextTick`, or `setImmediate` if many sockets feed this one. */
  readonly defer: (flush: () => void) => void;
  /** Whether the answer to a PING may wait for bulk to leave with. */
  readonly latePongs: boolean;
  /** How long a peer may be silent before it is pinged, in milliseconds. Unset: no keepalive; links check their own liveness. */
  readonly keepaliveMs?: number;
  /** Makes the error that open streams get when the connection ends. @param isFault whether a callback of ours threw */
  readonly lost: (reason: Error, isFault: boolean) => Error;
  /** The other side opened a stream, which needs a face at once. */
  readonly opened: (stream: Http2Stream, request: readonly Field[]) => void;
  /** The other side is leaving: gracefully, or at once with a reason. */
  readonly goaway?: (reason?: Error) => void;
  /** The other side broke the protocol, or did not answer a PING, and the connection ends. */
  readonly failed?: (error: Error) => void;
  /** A callback of ours threw, and the connection ends. */
  readonly fault: (error: Error) => void;
  /** The connection and all its streams have ended; the last bytes may still be on their way. */
  readonly ended?: (reason: Error) => void;
  /** The socket has closed. */
  readonly closed?: () => void;
}

/** The first frames, which say what the other side may do. The connection's window is no limit: a stalled stream must not stop others. */
export function greeting(role: 'client' | 'server', settings: Partial<Settings>): Buffer {
  const words = [
    settingsFrame(role === 'client' ? { ...settings, enablePush: false } : settings),
    windowUpdateFrame(0, CONNECTION_WINDOW - DEFAULT_SETTINGS.initialWindowSize),
  ];
  return Buffer.concat(role === 'client' ? [PREFACE, ...words] : words);
}
