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

type Round = Map<string, PromiseWithResolvers<object>>;

/** Asks in one request for all members that are asked the same in one turn of the event loop. */
export class AskRounds<Question extends object> {
  readonly #ask: (question: Question, members: readonly string[]) => AsyncIterable<AskLine>;
  readonly #faultOf: (error: AskError) => Error;
  readonly #rounds = new Map<string, Round>();

  /** @param faultOf makes the error of a member that says why it does not answer */
  constructor(
    ask: (question: Question, members: readonly string[]) => AsyncIterable<AskLine>,
    faultOf: (error: AskError) => Error,
  ) {
    this.#ask = ask;
    this.#faultOf = faultOf;
  }

  /** @returns the member's answer */
  ask(member: string, question: Question): Promise<object> {
    const key = JSON.stringify(question);
    let round = this.#rounds.get(key);
    if (!round) {
      const begun: Round = new Map();
      round = begun;
      this.#rounds.set(key, begun);
      queueMicrotask(() => {
        this.#rounds.delete(key);
        void this.#askRound(question, begun);
      });
    }
    const asked = round.get(member) ?? Promise.withResolvers<object>();
    round.set(member, asked);
    return asked.promise;
  }

  async #askRound(question: Question, round: Round): Promise<void> {
    let fault: unknown = new Error('the connection ended before the answer');
    try {
      for await (const { member, answer, error } of this.#ask(question, [...round.keys()])) {
        const asked = round.get(member.id);
        if (error) asked?.reject(this.#faultOf(error));
        else asked?.resolve(answer ?? {});
      }
    } catch (error) {
      fault = error;
    }
    for (const { reject } of round.values()) reject(fault);
  }
}
