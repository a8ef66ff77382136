/** What an operator asks a process of the plane: a method of the admin RPC. */
export interface Question {
  /** Whom: a member by its id, or an agent. */
  readonly to: { readonly member: string } | { readonly tenant: string; readonly agent: string };
  /** Of the admin RPC, as its definition has it: `GetStatus`. */
  readonly method: string;
  /** The request in JSON. */
  readonly message: unknown;
  /** Who asks, as the member says whose admin port the operator reached. With `tenant`, an operator of one tenant alone. */
  readonly operator: { readonly identity: string; readonly remote: string; readonly tenant?: string };
  /** The method changes nothing: it may be asked twice. */
  readonly reads: boolean;
  /** It was passed on once: who gets it asks nobody who has no link to the process. */
  readonly passed?: boolean;
}

/**
 * Answers a question: yields responses in JSON, one for a method that streams none. Throws what the operator reads instead, such as
 * why the process cannot be asked.
 * @param signal aborted when nobody waits any more
 */
export type Ask = (question: Question, signal: AbortSignal) => AsyncIterable<unknown>;
