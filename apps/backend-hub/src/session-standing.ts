import type { Grant } from '@isthmus/admission';
import { NotAuthorised } from '@isthmus/tunnel';

/** How soon after one fresh token the next is verified, in milliseconds. Tokens that come sooner are refused. */
const RENEW_AFTER = 1000;

/** The same after one that was refused: each costs verifications. Our agents wait 22 s or more. */
const RENEW_AFTER_REFUSAL = 20_000;

export interface SessionStandingOptions {
  readonly grant: Grant;
  /** What its agent says of itself, which the tenant's file must allow whatever the session stands on. */
  readonly claim?: Parameters<Grant['watch']>[1];
  /** Verifies a fresh token. Unset: the session's credential is no token. Rejects with NotAuthorised. */
  readonly renew: ((token: string) => Promise<Grant>) | undefined;
  /** Called once when the session stands on nothing any more. */
  readonly ended: (reason: Error) => void;
  /** Called for a fresh token that is not taken. The session goes on for as long as the earlier one stands. */
  readonly refused: (error: Error) => void;
}

/** What a session stands on: one grant at a time. Dispose of it when the session has ended. */
export class SessionStanding implements Disposable {
  readonly #options: SessionStandingOptions;
  #unwatch: () => void;
  #busy = false;
  /** When the next token may come. */
  #notBefore = 0;
  #over = false;

  constructor(options: SessionStandingOptions) {
    this.#options = options;
    this.#unwatch = this.#watch(options.grant);
  }

  /** Lets the session stand on a fresh token, and calls `taken` when it does. */
  async renew(token: string, taken: () => void): Promise<void> {
    const { renew } = this.#options;
    if (!renew || this.#busy || performance.now() < this.#notBefore) {
      const text = renew ? 'fresh tokens come too fast' : 'the session stands on no token that could be renewed';
      this.#refuse(new Error(text));
      return;
    }
    this.#busy = true;
    this.#notBefore = performance.now() + RENEW_AFTER;
    try {
      const grant = await renew(token);
      if (this.#over) return;
      // The old one last: the session stands on one of them at any moment.
      const unwatch = this.#watch(grant);
      this.#unwatch();
      this.#unwatch = unwatch;
      taken();
    } catch (error) {
      this.#notBefore = performance.now() + RENEW_AFTER_REFUSAL;
      if (!this.#over) this.#refuse(error as Error);
    } finally {
      this.#busy = false;
    }
  }

  [Symbol.dispose](): void {
    this.#over = true;
    this.#unwatch();
  }

  /** Its agent has proven who it is, even if its token is refused. */
  #refuse(error: Error): void {
    const { grant, refused } = this.#options;
    const { rule, principal, undecided = false } = error instanceof NotAuthorised ? error : {};
    if (principal) refused(error);
    else
      refused(
        new NotAuthorised(error.message, { rule: rule ?? grant.principal.rule, principal: grant.principal, undecided }),
      );
  }

  #watch(grant: Grant): () => void {
    return grant.watch((reason) => {
      this.#over = true;
      this.#options.ended(reason);
    }, this.#options.claim);
  }
}
