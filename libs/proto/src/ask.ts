/** A process that was asked. */
export interface AskedMember {
  readonly id: string;
  /** `gateway`, `hub`, `agent` */
  readonly roles: readonly string[];
  /** `host:port` of its admin port; empty if it advertises none. */
  readonly address: string;
  readonly version: string;
  readonly zone: string;
}

/** A line of an answer of `POST /ask`: what one process says, or why it says nothing. */
export interface AskLine<Answer = object> {
  readonly member: AskedMember;
  readonly answer?: Answer;
  readonly error?: AskError;
}

export interface AskError {
  /** `permission_denied` */
  readonly code: string;
  readonly message: string;
}

/**
 * Yields the lines of a text that comes in pieces, without empty ones.
 * @param tooLong makes the error for a line of more than `most` characters
 */
export async function* linesOf(
  pieces: AsyncIterable<string>,
  most: number,
  tooLong: () => Error,
): AsyncGenerator<string> {
  let begun: string[] = [];
  let length = 0;
  for await (const piece of pieces) {
    const [first = '', ...others] = piece.split('\n');
    begun.push(first);
    length += first.length;
    for (const text of others) {
      const line = begun.join('');
      begun = [text];
      length = text.length;
      if (line !== '') yield line;
    }
    if (length > most) throw tooLong();
  }
  if (length > 0) yield begun.join('');
}
