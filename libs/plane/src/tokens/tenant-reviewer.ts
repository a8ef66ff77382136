import { type KubeClient, kubeClient, kubeconfigFile, TokenReviews, tokenAuthenticator } from '@isthmus/kube';
import { Breaker } from './breaker.ts';

/** How long one review may take, in milliseconds. An agent waits for 10 s. */
const REVIEW_TIMEOUT_MS = 4000;

/** How many reviews of one tenant run per second, and at once. 500 agents that return together wait 24 s at most. */
const REVIEWS_PER_SECOND = 20;
const REVIEW_BURST = 40;

/** How many tokens of one tenant may wait for their review. Each holds one of the connections that may wait (--max-waiting-agents). */
const MOST_WAITING_TOKENS = 200;

/** Where a tenant's tokens are reviewed, and whose they must be. */
export interface ReviewRules {
  /** Path. */
  readonly kubeconfig: string;
  readonly audience: string;
  readonly namespace: string;
  readonly serviceAccount: string;
}

export type Reviewed =
  | { readonly ok: true }
  /** `decided`: the API server or this process refused the token. Otherwise nobody could verify it. */
  | { readonly ok: false; readonly decided: boolean; readonly message: string };

export interface TokenAsker {
  readonly source: string;
  readonly signal: AbortSignal;
}

export interface TenantReviewerOptions {
  /** How long an answer is valid, in milliseconds. */
  readonly rememberMs: number;
  /** Default: 4 s. */
  readonly reviewTimeoutMs?: number;
}

/** Reviews the tokens of one tenant's agents at its own API server. Only that tenant notices when the server fails. */
export class TenantReviewer {
  readonly #rules: ReviewRules;
  readonly #reviews: TokenReviews;
  readonly #breaker = new Breaker();
  readonly #timeoutMs: number;
  #client: Promise<KubeClient> | undefined;
  #closed = false;

  constructor(rules: ReviewRules, { rememberMs, reviewTimeoutMs = REVIEW_TIMEOUT_MS }: TenantReviewerOptions) {
    this.#rules = rules;
    this.#timeoutMs = reviewTimeoutMs;
    this.#reviews = new TokenReviews({
      rememberMs,
      mostWaiting: MOST_WAITING_TOKENS,
      review: (token) => this.#review(token),
    });
  }

  async check(token: string, asker: TokenAsker): Promise<Reviewed> {
    const verdict = await this.#reviews.check(token, asker);
    return verdict.ok ? verdict : { ok: false, decided: verdict.reviewed, message: verdict.message };
  }

  close(): void {
    this.#closed = true;
    void this.#client?.then((client) => client[Symbol.dispose]()).catch(() => {});
  }

  /** Never rejects. */
  async #review(token: string) {
    const rests = this.#breaker.refusal;
    if (rests !== undefined) return { ok: false, reviewed: false, message: rests } as const;
    const verdict = await this.#ask(token);
    if (verdict.ok || verdict.reviewed) this.#breaker.succeeded();
    else this.#breaker.failed(verdict.message);
    return verdict;
  }

  async #ask(token: string) {
    try {
      const client = await this.#connected();
      return await tokenAuthenticator({ client, ...this.#rules })(token);
    } catch (error) {
      return { ok: false, reviewed: false, message: (error as Error).message } as const;
    }
  }

  /** The kubeconfig is read when the first token comes, and again every minute and after a failure. */
  #connected(): Promise<KubeClient> {
    this.#client ??= kubeClient({
      source: kubeconfigFile(this.#rules.kubeconfig),
      qps: REVIEWS_PER_SECOND,
      burst: REVIEW_BURST,
      rateName: 'the rate of a tenant',
      timeoutMs: this.#timeoutMs,
    }).then(
      (client) => {
        if (this.#closed) client[Symbol.dispose]();
        return client;
      },
      (error: Error) => {
        this.#client = undefined;
        throw error;
      },
    );
    return this.#client;
  }
}
