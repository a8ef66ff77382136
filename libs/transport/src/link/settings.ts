import type http2 from 'node:http2';
import { LARGEST_WINDOW } from './windows.ts';

/**
 * The whole link's window. It must exceed the sum of the streams' windows, or stalled tunnels use it up and all others stop
 * (measured: 500 stalled tunnels stopped a link of 16 MiB). Streams bound what is held, so this one bounds nothing.
 */
const LINK_WINDOW = 2 ** 31 - 1;

/** Node ends a session that holds more than this; the default of 10 MB ends a link with 300 stalled tunnels. Megabytes. */
const MAX_SESSION_MEMORY = 16 * 1024;

/** Tunnels and pending dials on one link. */
export const MAX_STREAMS = 100_000;

/** For both ends of a link: each needs the same, since each sends bulk data. */
export const linkOptions = {
  maxSessionMemory: MAX_SESSION_MEMORY,
  peerMaxConcurrentStreams: MAX_STREAMS,
  // Our heads are short. What is longer is not ours.
  maxSendHeaderBlockLength: 64 * 1024,
  settings: {
    initialWindowSize: LARGEST_WINDOW,
    maxConcurrentStreams: MAX_STREAMS,
    maxHeaderListSize: 64 * 1024,
    enablePush: false,
  },
} satisfies http2.ServerOptions & http2.ClientSessionOptions;

/** To be called on a new session, on both ends: what options cannot set. */
export function widen(session: http2.Http2Session): void {
  const apply = () => {
    if (!session.destroyed) session.setLocalWindowSize(LINK_WINDOW);
  };
  if (session.connecting) session.once('connect', apply);
  else apply();
}
