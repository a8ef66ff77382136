/** A peer asks for more than its limit. The message names the limit and the flag that sets it. */
export class AgentLimitError extends Error {
  override readonly name = 'AgentLimitError';
  /** Which limit, for the counter of refusals: `agent sessions`. */
  readonly where: string;

  constructor(where: string, message: string) {
    super(message);
    this.where = where;
  }
}

/**
 * Returns where a refusal is counted.
 * @param otherwise for an error that is not about a limit
 */
export function refusedWhere(error: Error, otherwise: string): string {
  const cause = error instanceof AgentLimitError ? error : error.cause;
  return cause instanceof AgentLimitError ? cause.where : otherwise;
}
