/** Who uses an admin port. */
export interface Operator {
  /** The certificate's subject; `host:port` without one, on loopback. */
  readonly identity: string;
  /** `host:port` */
  readonly remote: string;
  /** Set for an operator of one tenant alone. */
  readonly tenant?: string;
}

/** What an operator did or asked for on an admin port, beyond reading. Also what was refused, reading included. */
export interface Operation {
  readonly operator: Operator;
  /** The call of the admin RPC, such as `Kick`, or the path of a page. */
  readonly call: string;
  /** Whose agents, sessions or tunnels it acts on. Unset: the whole process. */
  readonly tenant?: string;
  /** What it acts on, in words: `agent edge-1`. */
  readonly target?: string;
  readonly outcome: 'done' | 'refused' | 'failed';
  /** The reason that the operator gave; why it was refused or failed. */
  readonly text?: string;
}
