import { createHash } from 'node:crypto';
import { Remembered } from './remembered.ts';
import type { TokenVerdict } from './token-review.ts';
import { Turns } from './turns.ts';

/** Reviews in progress at once. No more than these use the client's rate, so at worst ten of them delay the renewal of a lease. */
const REVIEWS_AT_ONCE = 10;

/** How long a token may wait for its answer, in milliseconds. Its agent waits no longer for ours. */
const PATIENCE_MS = 10_000;

/** Tokens that wait for their review. Each belongs to a connection, and fewer connections may wait. */
const MOST_WAITING_TOKENS = 10_000;

/** Answers to remember, of each kind. 1,000 take some 300 KB. */
const MOST_REMEMBERED_ANSWERS = 10_000;

/** The longest time to remember a refusal, in milliseconds. A token that becomes valid (its account was created late) waits this long. */
const REFUSED_FOR = 10_000;

/** How many characters of a refusal to remember. The API server may send any text. */
const LONGEST_MESSAGE = 300;

export interface TokenReviewsOptions {
  readonly review: (token: string) => Promise<TokenVerdict>;
  /** How long an answer is valid, in milliseconds. 0: each token is reviewed each time. */
  readonly rememberMs: number;
  /** Tokens that may wait for their review. */
  readonly mostWaiting?: number;
  readonly now?: () => number;
  readonly random?: () => number;
}

export interface TokenAsker {
  /** The source of the token. Sources take turns. */
  readonly source: string;
  /** Aborts when the peer has gone. */
  readonly signal: AbortSignal;
}

/** A token under review, or waiting for it. */
interface Review {
  readonly key: string;
  readonly token: string;
  readonly source: string;
  /** The callers that wait for the verdict. */
  readonly waiting: Set<(verdict: TokenVerdict) => void>;
}

/**
 * Reviews of tokens: a few at a time, each token once however many present it, and each answer is valid for a while. Sources of
 * connections take turns, so a flood of junk from one delays no other. While the API server does not answer, only tokens with a
 * remembered good answer are accepted. A missing answer is not remembered.
 */
export class TokenReviews {
  readonly #review: TokenReviewsOptions['review'];
  readonly #good: Remembered<TokenVerdict>;
  readonly #bad: Remembered<TokenVerdict>;
  readonly #open = new Map<string, Review>();
  readonly #turns: Turns<Review>;
  readonly #mostWaiting: number;
  #running = 0;

  constructor(options: TokenReviewsOptions) {
    const { review, rememberMs, mostWaiting = MOST_WAITING_TOKENS, now = () => performance.now(), random } = options;
    this.#review = review;
    this.#mostWaiting = mostWaiting;
    this.#good = new Remembered(rememberMs, MOST_REMEMBERED_ANSWERS, now);
    this.#bad = new Remembered(Math.min(rememberMs, REFUSED_FOR), MOST_REMEMBERED_ANSWERS, now);
    this.#turns = new Turns(random);
  }

  /** Number of tokens that wait for their review. */
  get waiting(): number {
    return this.#turns.size;
  }

  /** Number of answers that are remembered. */
  get remembered(): number {
    return this.#good.size + this.#bad.size;
  }

  /** Never rejects. */
  check(token: string, asker: TokenAsker): Promise<TokenVerdict> {
    // Hashed, so that nobody can read tokens out of memory.
    const key = createHash('sha256').update(token).digest('base64');
    const known = this.#good.get(key) ?? this.#bad.get(key);
    if (known) return Promise.resolve(known);
    const review = this.#open.get(key) ?? this.#begin(key, token, asker.source);
    if (!review) return Promise.resolve(refusal(`${this.#mostWaiting} tokens already wait for a review, try again`));
    return this.#answer(review, asker.signal);
  }

  #begin(key: string, token: string, source: string): Review | undefined {
    if (this.#turns.size >= this.#mostWaiting) return undefined;
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
    while (this.#running < REVIEWS_AT_ONCE) {
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
