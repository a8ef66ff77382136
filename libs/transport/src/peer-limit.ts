/** A peer asks for more than it may have. The message names the limit, and the flag that sets it. */
export class PeerLimit extends Error {
  override readonly name = 'PeerLimit';
  /** Which limit, for the counter of refusals: `agent sessions`. */
  readonly where: string;

  constructor(where: string, message: string) {
    super(message);
    this.where = where;
  }
}

/** Where a refusal is counted. @param otherwise of one that is about no limit */
export function placeOf(error: Error, otherwise: string): string {
  const cause = error instanceof PeerLimit ? error : error.cause;
  return cause instanceof PeerLimit ? cause.where : otherwise;
}
