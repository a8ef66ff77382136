import { createHash } from 'node:crypto';
import { Remembered } from './remembered.ts';
import type { TokenVerdict } from './token-review.ts';
import { Turns } from './turns.ts';

/** Reviews under way at once: no more wait for the client's rate, so that leases are renewed behind ten of them at worst. */
const AT_ONCE = 10;

/** How long a token may wait for its answer, in milliseconds: its agent waits no longer for ours. */
const PATIENCE_MS = 10_000;

/** Tokens that wait for their review. Each belongs to a connection, of which fewer may wait. */
const MOST_WAITING = 10_000;

/** Answers that are remembered, of each kind: 1,000 take some 300 KB. */
const MOST_REMEMBERED = 10_000;

/** A refusal is remembered for so long at most, in milliseconds: a token that becomes good (an account that was made late) waits for it. */
const REFUSED_FOR = 10_000;

/** Of a refusal's words so many characters are remembered: the API server says what it likes. */
const LONGEST_MESSAGE = 300;

export interface TokenReviewsOptions {
  readonly review: (token: string) => Promise<TokenVerdict>;
  /** How long an answer holds, in milliseconds. 0: each token is reviewed each time. */
  readonly rememberMs: number;
  readonly now?: () => number;
  readonly random?: () => number;
}

export interface TokenAsker {
  /** Where the token came from: sources take turns. */
  readonly source: string;
  /** Aborted when it is gone. */
  readonly signal: AbortSignal;
}

/** A token under review, or waiting for it. */
interface Review {
  readonly key: string;
  readonly token: string;
  readonly source: string;
  /** Whom its verdict is told. */
  readonly waiting: Set<(verdict: TokenVerdict) => void>;
}

/**
 * Tokens' reviews, so many at a time, each token once however many show it, and each answer for a while. Each source of connections has
 * its turn, so that a flood of junk from one takes nothing from the others. An API server that does not answer lets nobody in but
 * those whose good answer is remembered; that it did not answer is not remembered.
 */
export class TokenReviews {
  readonly #review: TokenReviewsOptions['review'];
  readonly #good: Remembered<TokenVerdict>;
  readonly #bad: Remembered<TokenVerdict>;
  readonly #open = new Map<string, Review>();
  readonly #turns: Turns<Review>;
  #running = 0;

  constructor({ review, rememberMs, now = () => performance.now(), random }: TokenReviewsOptions) {
    this.#review = review;
    this.#good = new Remembered(rememberMs, MOST_REMEMBERED, now);
    this.#bad = new Remembered(Math.min(rememberMs, REFUSED_FOR), MOST_REMEMBERED, now);
    this.#turns = new Turns(random);
  }

  /** Tokens that wait for their review. */
  get waiting(): number {
    return this.#turns.size;
  }

  /** Answers that are remembered. */
  get remembered(): number {
    return this.#good.size + this.#bad.size;
  }

  /** Never rejects. */
  check(token: string, asker: TokenAsker): Promise<TokenVerdict> {
    // Nobody can read tokens out of what is remembered.
    const key = createHash('sha256').update(token).digest('base64');
    const known = this.#good.get(key) ?? this.#bad.get(key);
    if (known) return Promise.resolve(known);
    const review = this.#open.get(key) ?? this.#begin(key, token, asker.source);
    if (!review) return Promise.resolve(refusal(`${MOST_WAITING} tokens already wait for a review, try again`));
    return this.#answer(review, asker.signal);
  }

  #begin(key: string, token: string, source: string): Review | undefined {
    if (this.#turns.size >= MOST_WAITING) return undefined;
    const review: Review = { key, token, source, waiting: new Set() };
    this.#open.set(key, review);
    this.#turns.add(source, review);
    this.#next();
    return review;
  }

  #answer(review: Review, signal: AbortSignal): Promise<TokenVerdict> {
    return new Promise((resolve) => {
      const settle = (verdict: TokenVerdict) => {
        clearTimeout(late);
        review.waiting.delete(settle);
        signal.removeEventListener('abort', abandon);
        resolve(verdict);
      };
      const abandon = () => {
        settle(refusal('the token was not reviewed in time: too many wait, or the API server is slow'));
        if (review.waiting.size === 0 && this.#turns.delete(review.source, review)) this.#open.delete(review.key);
      };
      const late = setTimeout(abandon, PATIENCE_MS);
      review.waiting.add(settle);
      signal.addEventListener('abort', abandon, { once: true });
      if (signal.aborted) abandon();
    });
  }

  #next(): void {
    while (this.#running < AT_ONCE) {
      const review = this.#turns.next();
      if (!review) return;
      this.#running++;
      void this.#run(review);
    }
  }

  async #run(review: Review): Promise<void> {
    const verdict = await this.#review(review.token);
    this.#running--;
    this.#open.delete(review.key);
    if (verdict.ok) this.#good.put(review.key, verdict);
    else if (verdict.reviewed) {
      this.#bad.put(review.key, { ...verdict, message: verdict.message.slice(0, LONGEST_MESSAGE) });
    }
    for (const settle of [...review.waiting]) settle(verdict);
    this.#next();
  }
}

function refusal(message: string): TokenVerdict {
  return { ok: false, reviewed: false, message };
}
