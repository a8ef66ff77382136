import type { Link } from '@isthmus/tunnel';

/** The half of a connection that dials: over a link of ours, or over the packet stream of a Go agent. */
export interface Dialer extends Link {
  /** Dials and tunnels. */
  readonly open: number;
  /** Resolves with the reason when the connection and all its tunnels have ended. */
  readonly closed: Promise<Error>;
  /** Tells the other side that this side is about to close, so that it opens another session first. Still takes dials. */
  leave(): void;
  /** Takes no new dials, lets running tunnels finish, then ends the connection. The caller bounds this with `destroy`. */
  close(): void;
  /** Ends the connection and every tunnel on it. */
  destroy(reason: Error): void;
  /** As `destroy`, and the other side hears the reason: it may not stay. */
  expel(reason: Error): void;
}
