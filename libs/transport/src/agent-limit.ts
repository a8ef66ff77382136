/** A peer asks for more than its limit. The message names the limit and the flag that sets it. */
export class PeerLimit extends Error {
  override readonly name = 'PeerLimit';
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
export function placeOf(error: Error, otherwise: string): string {
  const cause = error instanceof PeerLimit ? error : error.cause;
  return cause instanceof PeerLimit ? cause.where : otherwise;
}
