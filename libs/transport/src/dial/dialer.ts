import type { Dial } from '@isthmus/tunnel';

/** The half of a connection that dials: over a link of ours, or over the packet stream of a Go agent. */
export interface Dialer {
  readonly dial: Dial;
  /** Dials and tunnels. */
  readonly open: number;
  /** Resolves with the reason when the connection has ended and all its tunnels with it. */
  readonly closed: Promise<Error>;
  /** Tells the other side that this one goes away, so that it gets another session first. Dials are still taken. */
  leave(): void;
  /** Takes no new dial, lets running tunnels finish, then ends the connection. Bounded by whoever calls `destroy` later. */
  close(): void;
  /** Ends the connection and every tunnel on it. */
  destroy(reason: Error): void;
}
