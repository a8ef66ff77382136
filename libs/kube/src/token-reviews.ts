import { createHash } from 'node:crypto';
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
    const { review, rememberMs, mostWaiting = KUBE.tokensWaiting, now = () => performance.now(), random } = options;
    this.#review = review;
    this.#mostWaiting = mostWaiting;
    this.#good = new Remembered(rememberMs, KUBE.answersRemembered, now);
    this.#bad = new Remembered(Math.min(rememberMs, KUBE.refusalMs), KUBE.answersRemembered, now);
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
    if (!review)
      return Promise.resolve(notReviewed(`${this.#mostWaiting} tokens already wait for a review, try again`));
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
        settle(notReviewed('the token was not reviewed in time: too many wait, or the API server is slow'));
        if (review.waiting.size === 0 && this.#turns.delete(review.source, review)) this.#open.delete(review.key);
      };
      const late = setTimeout(abandon, KUBE.reviewMs);
      review.waiting.add(settle);
      signal.addEventListener('abort', abandon, { once: true });
      if (signal.aborted) abandon();
    });
  }

  #next(): void {
    while (this.#running < KUBE.reviewsAtOnce) {
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
      this.#bad.put(review.key, { ...verdict, message: verdict.message.slice(0, KUBE.refusalCharacters) });
    }
    for (const settle of [...review.waiting]) settle(verdict);
    this.#next();
  }
}

interface TokenAuthenticatorOptions {
  readonly client: KubeClient;
  /** Audience that the tokens must have (`--authentication-audience`). */
  readonly audience: string;
  /** Whose they must be. */
  readonly users: ServiceAccount | readonly string[];
}

/** The agents' service account: `--agent-namespace`, `--agent-service-account`. */
interface ServiceAccount {
  readonly namespace: string;
  readonly serviceAccount: string;
}

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
      return { ok: false, reviewed: false, message: `the token could not be reviewed: ${inWords(error)}` };
    }
  };
}

/** Returns why a reviewed token is refused, in upstream's words if it has any, or undefined if it is valid. */
function refusal(
  status: TokenReview['status'],
  { users, audience }: Pick<TokenAuthenticatorOptions, 'users' | 'audience'>,
): string | undefined {
  if (status?.error) return status.error;
  if (status?.authenticated !== true) return 'service account jwt not valid';
  // An API server that names no audiences has checked none: the token may be meant for the API server itself.
  const { audiences = [], user } = status;
  if (audiences.length === 0) return `the API server did not check that the token is for audience ${quote(audience)}`;
  if (!audiences.includes(audience)) return `token is not for audience ${quote(audience)}`;
  return userFault(user?.username ?? '', users);
}

function userFault(user: string, users: TokenAuthenticatorOptions['users']): string | undefined {
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

/** Recent results by key. If there are too many, the oldest is dropped. */
class Remembered<V> {
  readonly #forMs: number;
  readonly #most: number;
  readonly #now: () => number;
  /** In order of arrival, which is the order in which they expire. */
  readonly #known = new Map<string, { readonly value: V; readonly until: number }>();

  /** @param forMs how long a result is valid, in milliseconds. 0 remembers nothing */
  constructor(forMs: number, most: number, now: () => number) {
    this.#forMs = forMs;
    this.#most = most;
    this.#now = now;
  }

  get size(): number {
    return this.#known.size;
  }

  get(key: string): V | undefined {
    const known = this.#known.get(key);
    if (!known) return undefined;
    if (known.until > this.#now()) return known.value;
    this.#known.delete(key);
    return undefined;
  }

  put(key: string, value: V): void {
    if (this.#forMs <= 0) return;
    this.#known.delete(key);
    this.#known.set(key, { value, until: this.#now() + this.#forMs });
    for (const [oldest, { until }] of this.#known) {
      if (until > this.#now() && this.#known.size <= this.#most) break;
      this.#known.delete(oldest);
    }
  }
}

/**
 * Waiting items by source. Sources take turns, however many items each has. Within a source, a random item is next: if honest items and
 * junk come from one address, neither order of arrival would ever reach the honest ones during a flood.
 */
class Turns<T extends object> {
  readonly #random: () => number;
  /** In order of turns. */
  readonly #queues = new Map<string, T[]>();
  #size = 0;

  constructor(random: () => number = Math.random) {
    this.#random = random;
  }

  get size(): number {
    return this.#size;
  }

  add(asker: string, item: T): void {
    const queue = this.#queues.get(asker);
    if (queue) queue.push(item);
    else this.#queues.set(asker, [item]);
    this.#size++;
  }

  next(): T | undefined {
    for (const [asker, queue] of this.#queues) {
      const item = this.#taken(queue, Math.floor(this.#random() * queue.length));
      this.#queues.delete(asker);
      // Behind all others.
      if (queue.length > 0) this.#queues.set(asker, queue);
      return item;
    }
    return undefined;
  }

  delete(asker: string, item: T): boolean {
    const queue = this.#queues.get(asker);
    const place = queue?.indexOf(item) ?? -1;
    if (!queue || place < 0) return false;
    this.#taken(queue, place);
    if (queue.length === 0) this.#queues.delete(asker);
    return true;
  }

  #taken(queue: T[], place: number): T {
    const item = queue[place] as T;
    const last = queue.pop() as T;
    if (last !== item) queue[place] = last;
    this.#size--;
    return item;
  }
}

function notReviewed(message: string): TokenVerdict {
  return { ok: false, reviewed: false, message };
}
