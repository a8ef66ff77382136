import { createHash } from 'node:crypto';
import { deleteFrom, getOrPut, LruMap, RandomSet } from '@isthmus/runtime';
import { inWords } from '@isthmus/tunnel';
import type { KubeClient } from './client.ts';
import { KUBE } from './defaults.ts';

export type TokenVerdict =
  | { readonly ok: true; readonly user: string }
  /** `reviewed` unless the API server did not answer. The token may then be valid the next time. */
  | { readonly ok: false; readonly reviewed: boolean; readonly message: string };

interface TokenReviewsOptions {
  readonly review: (token: string) => Promise<TokenVerdict>;
  /** How long an answer is valid, in milliseconds. 0: each token is reviewed each time. */
  readonly rememberMs: number;
  /** Tokens that may wait for their review. */
  readonly mostWaiting?: number;
  readonly now?: () => number;
  readonly random?: () => number;
}

interface TokenAsker {
  /** The source of the token. Sources take turns. */
  readonly source: string;
  /** Aborts when the peer has gone. */
  readonly signal: AbortSignal;
}

interface Answer {
  readonly verdict: TokenVerdict;
  readonly until: number;
}

/** Stands for the sources of all tokens that were good before: they are reviewed first. */
const KNOWN = Symbol('tokens that were good before');

type Source = string | typeof KNOWN;

/** A token under review, or waiting for it. */
interface Review {
  readonly key: string;
  readonly token: string;
  readonly source: Source;
  /** The callers that wait for the verdict. */
  readonly waiting: Set<(verdict: TokenVerdict) => void>;
}

/**
 * Reviews of tokens: a few at a time, each token once however many present it. Each answer is valid for a while. A token that was good before is
 * reviewed again ahead of all others, and always has a place. Sources of connections take turns. If too many tokens wait, one of the source with the
 * most gives up its place, so a flood of junk delays no other source. While the API server does not answer, only tokens with a remembered good
 * answer are accepted. A missing answer is not remembered.
 */
export class TokenReviews {
  readonly #options: Required<TokenReviewsOptions>;
  readonly #good = new LruMap<string, Answer>(KUBE.answersRemembered);
  readonly #bad = new LruMap<string, Answer>(KUBE.answersRemembered);
  readonly #open = new Map<string, Review>();
  /** Those that wait for their review, by source, in order of turns. */
  readonly #queues = new Map<Source, RandomSet<Review>>();
  #running = 0;

  constructor(options: TokenReviewsOptions) {
    const defaults = { mostWaiting: KUBE.tokensWaiting, now: () => performance.now(), random: Math.random };
    this.#options = { ...defaults, ...options };
  }

  /** Number of tokens that wait for their review. */
  get waiting(): number {
    return this.#open.size - this.#running;
  }

  /** Never rejects. */
  check(token: string, asker: TokenAsker): Promise<TokenVerdict> {
    // Hashed, so that nobody can read tokens out of memory.
    const key = createHash('sha256').update(token).digest('base64');
    const known = this.#good.get(key) ?? this.#bad.get(key);
    if (known && known.until > this.#options.now()) return Promise.resolve(known.verdict);
    const source = this.#good.has(key) ? KNOWN : asker.source;
    const review = this.#open.get(key) ?? this.#begin(key, token, source);
    return review ? this.#answer(review, asker.signal) : Promise.resolve(this.#tooMany);
  }

  get #tooMany(): TokenVerdict {
    return notReviewed(`${this.#options.mostWaiting} tokens already wait for a review, try again`);
  }

  #begin(key: string, token: string, source: Source): Review | undefined {
    if (source !== KNOWN && this.waiting >= this.#options.mostWaiting && !this.#makeRoom(source)) return undefined;
    const review: Review = { key, token, source, waiting: new Set() };
    this.#open.set(key, review);
    getOrPut(this.#queues, source, () => new RandomSet()).add(review);
    this.#next();
    return review;
  }

  /** Takes the place of a token of the source that has the most, if that has more than this one would. */
  #makeRoom(source: string): boolean {
    let most: RandomSet<Review> | undefined;
    for (const [of, queue] of this.#queues) if (of !== KNOWN && queue.size > (most?.size ?? 0)) most = queue;
    if (!most || most.size <= (this.#queues.get(source)?.size ?? 0) + 1) return false;
    const given = most.draw(this.#options.random, () => true) as Review;
    deleteFrom(this.#queues, given.source, given);
    this.#open.delete(given.key);
    for (const settle of [...given.waiting]) settle(this.#tooMany);
    return true;
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
        settle(notReviewed('the token was not reviewed in time: too many wait, or the API server is slow'));
        if (review.waiting.size === 0 && deleteFrom(this.#queues, review.source, review)) this.#open.delete(review.key);
      };
      const late = setTimeout(abandon, KUBE.reviewMs);
      review.waiting.add(settle);
      signal.addEventListener('abort', abandon, { once: true });
      if (signal.aborted) abandon();
    });
  }

  #next(): void {
    while (this.#running < KUBE.reviewsAtOnce) {
      const [first] = this.#queues.keys();
      const source = this.#queues.has(KNOWN) ? KNOWN : first;
      const queue = source !== undefined && this.#queues.get(source);
      if (!queue) return;
      // At random: if honest tokens and junk come from one address, neither order of arrival would ever reach the honest ones in a flood.
      const review = queue.draw(this.#options.random, () => true) as Review;
      deleteFrom(this.#queues, review.source, review);
      // Behind all others.
      if (this.#queues.delete(source)) this.#queues.set(source, queue);
      this.#running++;
      void this.#run(review);
    }
  }

  async #run(review: Review): Promise<void> {
    const verdict = await this.#options.review(review.token);
    this.#running--;
    this.#open.delete(review.key);
    if (this.#options.rememberMs > 0 && (verdict.ok || verdict.reviewed)) this.#remember(review.key, verdict);
    for (const settle of [...review.waiting]) settle(verdict);
    this.#next();
  }

  #remember(key: string, verdict: TokenVerdict): void {
    const now = this.#options.now();
    this.#good.delete(key);
    this.#bad.delete(key);
    if (verdict.ok) this.#good.set(key, { verdict, until: now + this.#options.rememberMs });
    else {
      const kept = { ...verdict, message: verdict.message.slice(0, KUBE.refusalCharacters) };
      this.#bad.set(key, { verdict: kept, until: now + Math.min(this.#options.rememberMs, KUBE.refusalMs) });
    }
  }
}

interface TokenAuthenticatorOptions {
  readonly client: KubeClient;
  /** Audience that the tokens must have (`--authentication-audience`). */
  readonly audience: string;
  /** Whose they must be. */
  readonly users: TokenUsers;
}

/** A service account, such as the agents' (`--agent-namespace`, `--agent-service-account`), or names of users. */
export type TokenUsers = { readonly namespace: string; readonly serviceAccount: string } | readonly string[];

interface TokenReview {
  readonly status?: {
    readonly authenticated?: boolean;
    readonly error?: string;
    readonly audiences?: readonly string[];
    readonly user?: { readonly username?: string };
  };
}

/**
 * Asks the API server in one TokenReview whether a token belongs to one of the users, as upstream does for the agents' service account. Never rejects: if
 * the API server does not answer, the token is refused with that as the message.
 */
export function tokenAuthenticator(options: TokenAuthenticatorOptions): (token: string) => Promise<TokenVerdict> {
  const { client, audience } = options;
  return async (token) => {
    const review = {
      apiVersion: 'authentication.k8s.io/v1',
      kind: 'TokenReview',
      spec: { token, audiences: [audience] },
    };
    try {
      const path = '/apis/authentication.k8s.io/v1/tokenreviews';
      const { status } = await client.request<TokenReview>({ method: 'POST', path, body: review });
      const message = refusal(status, options);
      if (message !== undefined) return { ok: false, reviewed: true, message: `lookup failed: ${message}` };
      return { ok: true, user: status?.user?.username ?? '' };
    } catch (error) {
      return notReviewed(`the token could not be reviewed: ${inWords(error)}`);
    }
  };
}

/** Returns why a reviewed token is refused, in upstream's words if it has any, or undefined if it is valid. */
function refusal(status: TokenReview['status'], { users, audience }: TokenAuthenticatorOptions): string | undefined {
  if (status?.error) return status.error;
  if (status?.authenticated !== true) return 'service account jwt not valid';
  // An API server that names no audiences has checked none: the token may be meant for the API server itself.
  const { audiences = [], user } = status;
  if (audiences.length === 0) return `the API server did not check that the token is for audience ${quote(audience)}`;
  if (!audiences.includes(audience)) return `token is not for audience ${quote(audience)}`;
  return userFault(user?.username ?? '', users);
}

function userFault(user: string, users: TokenUsers): string | undefined {
  if (!('namespace' in users))
    return users.includes(user) ? undefined : `user ${quote(user)} is not one of those allowed`;
  const { namespace, serviceAccount } = users;
  // system:serviceaccount:NAMESPACE:NAME
  const [system, kind, tokenNamespace, name, ...rest] = user.split(':');
  if (name === undefined || rest.length > 0) return 'unexpected username format';
  if (system !== 'system' || kind !== 'serviceaccount') return 'username returned is not a service account';
  if (tokenNamespace !== namespace) return mismatch(tokenNamespace ?? '', 'namespace', namespace);
  if (name !== serviceAccount) return mismatch(name, 'service account', serviceAccount);
  return undefined;
}

function mismatch(actual: string, what: string, expected: string): string {
  return `incoming request from ${quote(actual)} ${what}. Expected ${quote(expected)}`;
}

function quote(text: string): string {
  return JSON.stringify(text);
}

/** The API server did not answer, or was not asked. */
export function notReviewed(message: string): TokenVerdict {
  return { ok: false, reviewed: false, message };
}
