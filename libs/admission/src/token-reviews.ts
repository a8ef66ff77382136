import {
  type KubeClient,
  kubeClient,
  kubeconfigFile,
  notReviewed,
  TokenReviews,
  type TokenVerdict,
  tokenAuthenticator,
} from '@isthmus/kube';
import type { Principal } from '@isthmus/tunnel';
import { type ReviewRules, reviewRules } from './credentials.ts';
import { ADMISSION } from './defaults.ts';
import type { ShownToken } from './identify.ts';
import type { Tenant } from './tenants.ts';

/** A circuit breaker for a server that does not answer. Those who need it fail at once, and one at a time checks whether it is back. */
export class Breaker {
  #failures = 0;
  #restsUntil = Number.NEGATIVE_INFINITY;
  #why = '';

  /** Why nobody may ask now; undefined if one may. Call `succeeded` or `failed` after asking. */
  get refusal(): string | undefined {
    if (this.#failures < ADMISSION.tokenReviewFailures) return undefined;
    const left = this.#restsUntil - performance.now();
    if (left > 0)
      return `it failed ${this.#failures} times in a row, and is asked again in ${Math.ceil(left / 1000)} s: ${this.#why}`;
    // One tries. If its result never comes, another one may try after the same time.
    this.#restsUntil = performance.now() + ADMISSION.tokenReviewRestMs;
    return undefined;
  }

  succeeded(): void {
    this.#failures = 0;
  }

  failed(why: string): void {
    this.#failures++;
    this.#why = why;
    this.#restsUntil = performance.now() + ADMISSION.tokenReviewRestMs;
  }
}

/** Reviews the tokens of one tenant's agents, or callers, at its own API server. Only that tenant notices when the server fails. */
class TenantReviewer {
  readonly tenant: string;
  /** Tokens that wait for its answer. */
  asking = 0;
  readonly #rules: ReviewRules;
  readonly #reviews: TokenReviews;
  readonly #breaker = new Breaker();
  #client: Promise<KubeClient> | undefined;
  #closed = false;

  /** @param rememberMs how long an answer is valid, in milliseconds */
  constructor(tenant: string, rules: ReviewRules, rememberMs: number) {
    this.tenant = tenant;
    this.#rules = rules;
    this.#reviews = new TokenReviews({
      rememberMs,
      mostWaiting: ADMISSION.tokenReviewsWaiting,
      review: (token) => this.#review(token),
    });
  }

  /** Never rejects. */
  async check({ token, source, signal }: ShownToken): Promise<TokenVerdict> {
    this.asking++;
    const verdict = await this.#reviews.check(token, { source, signal });
    this.asking--;
    return verdict;
  }

  close(): void {
    this.#closed = true;
    void this.#client?.then((client) => client[Symbol.dispose]()).catch(() => {});
  }

  /** Never rejects. */
  async #review(token: string): Promise<TokenVerdict> {
    const rests = this.#breaker.refusal;
    if (rests !== undefined) return notReviewed(rests);
    const { audience, users } = this.#rules;
    const verdict = await this.#connected().then(
      (client) => tokenAuthenticator({ client, audience, users })(token),
      (error: Error) => notReviewed(error.message),
    );
    if (verdict.ok || verdict.reviewed) this.#breaker.succeeded();
    else this.#breaker.failed(verdict.message);
    return verdict;
  }

  /** The kubeconfig is read when the first token comes, and again every minute and after a failure. */
  #connected(): Promise<KubeClient> {
    this.#client ??= kubeClient({
      source: kubeconfigFile(this.#rules.kubeconfig),
      qps: ADMISSION.tokenReviewsPerSecond,
      burst: ADMISSION.tokenReviewsBurst,
      rateName: 'the rate of a tenant',
      timeoutMs: ADMISSION.tokenReviewMs,
      answerBytes: ADMISSION.tokenReviewBytes,
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

/** An entry `tokenReview` of a tenant's file. */
interface Rule {
  /** `acme.yaml: agents[0].tokenReview` */
  readonly rule: string;
  readonly rules: ReviewRules;
  /** The reviewer's: another kubeconfig is another judge, whose verdicts are its own. */
  readonly key: string;
  /** Why no token is reviewed: what the kubeconfig leads to is not known, and another tenant may have it. */
  readonly fault: TokenVerdict | undefined;
}

/** By tenant and rules, the one asked last at the end. */
type Reviewers = Map<string, TenantReviewer>;

interface ReviewAnswer extends Pick<Rule, 'rule' | 'rules'> {
  readonly verdict: TokenVerdict;
}

export interface TenantReviewsOptions {
  /** Whose tokens they are. */
  readonly role: Principal['role'];
  /** A path in a tenant's file as an absolute one. */
  readonly path: (named: string) => string;
  /** How long an answer is valid, in milliseconds. */
  readonly rememberMs: number;
}

/** Reviews of tokens at the tenants' own API servers: one reviewer a tenant, made when its first token comes. */
export class TenantReviews {
  readonly #options: TenantReviewsOptions;
  /** Those that have accepted a token. */
  readonly #proven: Reviewers = new Map();
  readonly #others: Reviewers = new Map();

  constructor(options: TenantReviewsOptions) {
    this.#options = options;
  }

  /** @returns undefined if the tenant's file has no `tokenReview` */
  async check(shown: ShownToken, tenant: Tenant): Promise<ReviewAnswer | undefined> {
    let answer: ReviewAnswer | undefined;
    for (const { rule, rules, key, fault } of this.#entriesOf(tenant).slice(0, ADMISSION.tokenReviewServers)) {
      const verdict = fault ?? (await this.#check(shown, tenant.name, rules, key));
      answer = { verdict, rule, rules };
      if (verdict.ok) break;
    }
    return answer;
  }

  /** Whether a tenant's file still has these rules. */
  has(tenant: Tenant, rules: ReviewRules): boolean {
    return this.#entriesOf(tenant).some((entry) => keyOf('', entry.rules) === keyOf('', rules));
  }

  /** Forgets what a tenant's file no longer has. @param tenant undefined: all of it */
  update(name: string, tenant: Tenant | undefined): void {
    const wanted = new Set(tenant && this.#entriesOf(tenant).map(({ key }) => key));
    for (const kept of [this.#proven, this.#others])
      for (const [key, { tenant: of }] of kept) if (of === name && !wanted.has(key)) drop(kept, key);
  }

  close(): void {
    for (const kept of [this.#proven, this.#others]) for (const key of [...kept.keys()]) drop(kept, key);
  }

  async #check(shown: ShownToken, tenant: string, rules: ReviewRules, key: string): Promise<TokenVerdict> {
    const reviewer = this.#known(key) ?? new TenantReviewer(tenant, rules, this.#options.rememberMs);
    const checked = reviewer.check(shown);
    if (!this.#proven.has(key)) keep(this.#others, key, reviewer);
    const verdict = await checked;
    // The tenant may have been removed meanwhile.
    if (verdict.ok && this.#known(key) === reviewer) {
      this.#others.delete(key);
      keep(this.#proven, key, reviewer);
    }
    return verdict;
  }

  #known(key: string): TenantReviewer | undefined {
    return this.#proven.get(key) ?? this.#others.get(key);
  }

  #entriesOf({ name, path, file, credentials }: Tenant): Rule[] {
    const { role } = this.#options;
    return reviewRules(file, role).map(({ at, ...each }) => {
      const rules = { ...each, kubeconfig: this.#options.path(each.kubeconfig) };
      const { digest, fault: why } = credentials.file(`${at}.kubeconfig`);
      const fault = why === undefined ? undefined : notReviewed(`kubeconfig ${rules.kubeconfig}: ${why}`);
      return { rule: `${path}: ${at}`, rules, key: keyOf(name, rules, digest), fault };
    });
  }
}

/** Keeps a reviewer, and drops old ones, but none that is being asked: a connection waits for it (--max-waiting-agents bounds these). */
function keep(kept: Reviewers, key: string, reviewer: TenantReviewer): void {
  kept.delete(key);
  kept.set(key, reviewer);
  for (const [oldest, { asking }] of kept) {
    if (kept.size <= ADMISSION.tokenReviewers) return;
    if (asking === 0) drop(kept, oldest);
  }
}

function drop(kept: Reviewers, key: string): void {
  kept.get(key)?.close();
  kept.delete(key);
}

function keyOf(tenant: string, rules: ReviewRules, digest = ''): string {
  return JSON.stringify([tenant, rules.kubeconfig, rules.audience, rules.users, digest]);
}
