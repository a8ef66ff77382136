import { type KubeClient, kubeClient, kubeconfigFile, TokenReviews, tokenAuthenticator } from '@isthmus/kube';
import type { Principal } from '@isthmus/tunnel';
import { type ReviewRules, reviewRules } from './credentials.ts';
import { ADMISSION } from './defaults.ts';
import type { Tenant } from './tenants.ts';

interface BreakerOptions {
  readonly now?: () => number;
}

/** A circuit breaker for a server that does not answer. Those who need it fail at once, and one at a time checks whether it is back. */
export class Breaker {
  readonly #now: () => number;
  #failures = 0;
  #restsUntil = Number.NEGATIVE_INFINITY;
  #why = '';

  constructor({ now = () => performance.now() }: BreakerOptions = {}) {
    this.#now = now;
  }

  /** Why nobody may ask now; undefined if one may. Call `succeeded` or `failed` after asking. */
  get refusal(): string | undefined {
    if (this.#failures < ADMISSION.tokenReviewFailures) return undefined;
    const left = this.#restsUntil - this.#now();
    if (left > 0)
      return `it failed ${this.#failures} times in a row, and is asked again in ${Math.ceil(left / 1000)} s: ${this.#why}`;
    // One tries. If its result never comes, another one may try after the same time.
    this.#restsUntil = this.#now() + ADMISSION.tokenReviewRestMs;
    return undefined;
  }

  succeeded(): void {
    this.#failures = 0;
  }

  failed(why: string): void {
    this.#failures++;
    this.#why = why;
    this.#restsUntil = this.#now() + ADMISSION.tokenReviewRestMs;
  }
}

type Reviewed =
  | { readonly ok: true; readonly user: string }
  /** `decided`: the API server or this process refused the token. Otherwise nobody could verify it. */
  | { readonly ok: false; readonly decided: boolean; readonly message: string };

interface TokenAsker {
  readonly source: string;
  readonly signal: AbortSignal;
}

interface TenantReviewerOptions {
  /** How long an answer is valid, in milliseconds. */
  readonly rememberMs: number;
  /** Default: 4 s. */
  readonly reviewTimeoutMs?: number;
}

/** Reviews the tokens of one tenant's agents, or callers, at its own API server. Only that tenant notices when the server fails. */
class TenantReviewer {
  readonly #rules: ReviewRules;
  readonly #reviews: TokenReviews;
  readonly #breaker = new Breaker();
  readonly #timeoutMs: number;
  #client: Promise<KubeClient> | undefined;
  #closed = false;

  constructor(rules: ReviewRules, { rememberMs, reviewTimeoutMs = ADMISSION.tokenReviewMs }: TenantReviewerOptions) {
    this.#rules = rules;
    this.#timeoutMs = reviewTimeoutMs;
    this.#reviews = new TokenReviews({
      rememberMs,
      mostWaiting: ADMISSION.tokenReviewsWaiting,
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
      const { audience, users } = this.#rules;
      return await tokenAuthenticator({ client, audience, users })(token);
    } catch (error) {
      return { ok: false, reviewed: false, message: (error as Error).message } as const;
    }
  }

  /** The kubeconfig is read when the first token comes, and again every minute and after a failure. */
  #connected(): Promise<KubeClient> {
    this.#client ??= kubeClient({
      source: kubeconfigFile(this.#rules.kubeconfig),
      qps: ADMISSION.tokenReviewsPerSecond,
      burst: ADMISSION.tokenReviewsBurst,
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

/** An entry `tokenReview` of a tenant's file. */
interface Rule {
  readonly rule: string;
  readonly rules: ReviewRules;
  /** The reviewer's: another kubeconfig is another judge, whose verdicts are its own. */
  readonly key: string;
}

interface Entry {
  readonly tenant: string;
  readonly reviewer: TenantReviewer;
  /** Tokens that wait for its answer. */
  asking: number;
}

/** By tenant and rules, the one asked last at the end. */
type Reviewers = Map<string, Entry>;

interface ReviewAnswer {
  readonly verdict: Reviewed;
  /** `acme.yaml: agents[0].tokenReview` */
  readonly rule: string;
  readonly rules: ReviewRules;
}

interface TenantReviewsOptions {
  /** Whose tokens they are. */
  readonly role: Principal['role'];
  /** A path in a tenant's file as an absolute one. */
  readonly path: (named: string) => string;
  readonly rememberMs: number;
  readonly reviewTimeoutMs?: number;
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
  async check(token: string, tenant: Tenant, asker: TokenAsker): Promise<ReviewAnswer | undefined> {
    let answer: ReviewAnswer | undefined;
    for (const { rule, rules, key } of this.#entriesOf(tenant).slice(0, ADMISSION.tokenReviewServers)) {
      const verdict = await this.#check(token, tenant.name, rules, key, asker);
      answer = { verdict, rule, rules };
      if (verdict.ok) break;
    }
    return answer;
  }

  /** Whether a tenant's file still has these rules. */
  has(tenant: Tenant, rules: ReviewRules): boolean {
    return this.#entriesOf(tenant).some((entry) => same(entry.rules, rules));
  }

  /** Forgets what a tenant's file no longer has. @param tenant undefined: all of it */
  update(name: string, tenant: Tenant | undefined): void {
    const wanted = new Set(tenant && this.#entriesOf(tenant).map(({ key }) => key));
    for (const kept of [this.#proven, this.#others])
      for (const [key, entry] of kept) if (entry.tenant === name && !wanted.has(key)) drop(kept, key);
  }

  close(): void {
    for (const kept of [this.#proven, this.#others]) for (const key of [...kept.keys()]) drop(kept, key);
  }

  async #check(token: string, tenant: string, rules: ReviewRules, key: string, asker: TokenAsker): Promise<Reviewed> {
    const known = this.#known(key);
    const entry: Entry = known ?? { tenant, reviewer: new TenantReviewer(rules, this.#options), asking: 0 };
    entry.asking++;
    if (!this.#proven.has(key)) keep(this.#others, key, entry);
    const verdict = await entry.reviewer.check(token, asker);
    entry.asking--;
    // The tenant may have been removed meanwhile.
    if (verdict.ok && this.#known(key) === entry) {
      this.#others.delete(key);
      keep(this.#proven, key, entry);
    }
    return verdict;
  }

  #known(key: string): Entry | undefined {
    return this.#proven.get(key) ?? this.#others.get(key);
  }

  #entriesOf({ name, path, file, credentials }: Tenant): Rule[] {
    const { role } = this.#options;
    return reviewRules(file, role).map(({ at, ...each }) => {
      const rules = { ...each, kubeconfig: this.#options.path(each.kubeconfig) };
      return { rule: `${path}: ${at}`, rules, key: keyOf(name, rules, credentials.digest(`${at}.kubeconfig`)) };
    });
  }
}

/** Keeps a reviewer, and drops old ones, but none that is being asked: a connection waits for it (--max-waiting-agents bounds these). */
function keep(kept: Reviewers, key: string, entry: Entry): void {
  kept.delete(key);
  kept.set(key, entry);
  for (const [oldest, { asking }] of kept) {
    if (kept.size <= ADMISSION.tokenReviewers) return;
    if (asking === 0) drop(kept, oldest);
  }
}

function drop(kept: Reviewers, key: string): void {
  kept.get(key)?.reviewer.close();
  kept.delete(key);
}

function keyOf(tenant: string, rules: ReviewRules, digest = ''): string {
  return JSON.stringify([tenant, rules.kubeconfig, rules.audience, rules.users, digest]);
}

function same(a: ReviewRules, b: ReviewRules): boolean {
  return keyOf('', a) === keyOf('', b);
}
