import { REVIEW_DEFAULTS, type Tenant } from '@isthmus/admission';
import { type Reviewed, type ReviewRules, TenantReviewer, type TokenAsker } from './tenant-reviewer.ts';

/**
 * How many reviewers are kept, with their answers and connections: so many that have accepted a token, and as many that have not. One more
 * replaces the one of its kind that was used longest ago. So strangers' tokens cannot make a tenant's remembered answers disappear.
 */
const MOST_REVIEWERS = 500;

/** How many API servers are asked about one token. */
const MOST_SERVERS_ASKED = 2;

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
type Kept = Map<string, Entry>;

export interface ReviewAnswer {
  readonly verdict: Reviewed;
  /** `acme.yaml: agents[0].tokenReview` */
  readonly rule: string;
  readonly rules: ReviewRules;
  /** The user name that a good token has. */
  readonly subject: string;
}

export interface TenantReviewsOptions {
  /** A path in a tenant's file as an absolute one. */
  readonly path: (named: string) => string;
  readonly rememberMs: number;
  readonly reviewTimeoutMs?: number;
}

/** Reviews of tokens at the tenants' own API servers: one reviewer a tenant, made when its first token comes. */
export class TenantReviews {
  readonly #options: TenantReviewsOptions;
  /** Those that have accepted a token. */
  readonly #proven: Kept = new Map();
  readonly #others: Kept = new Map();

  constructor(options: TenantReviewsOptions) {
    this.#options = options;
  }

  /** @returns undefined if the tenant's file has no `tokenReview` */
  async check(token: string, tenant: Tenant, asker: TokenAsker): Promise<ReviewAnswer | undefined> {
    let answer: ReviewAnswer | undefined;
    for (const { rule, rules, key } of this.#entriesOf(tenant).slice(0, MOST_SERVERS_ASKED)) {
      const verdict = await this.#check(token, tenant.name, rules, key, asker);
      const subject = `system:serviceaccount:${rules.namespace}:${rules.serviceAccount}`;
      answer = { verdict, rule, rules, subject };
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
    return (file.agents ?? []).flatMap(({ tokenReview }, index) => {
      if (!tokenReview) return [];
      const kubeconfig = this.#options.path(tokenReview.kubeconfig);
      const { audience, namespace, serviceAccount } = { ...REVIEW_DEFAULTS, ...tokenReview };
      const at = `agents[${index}].tokenReview`;
      const rules = { kubeconfig, audience, namespace, serviceAccount };
      return { rule: `${path}: ${at}`, rules, key: keyOf(name, rules, credentials.digest(`${at}.kubeconfig`)) };
    });
  }
}

/** Keeps a reviewer, and drops old ones, but none that is being asked: a connection waits for it (--max-waiting-agents bounds these). */
function keep(kept: Kept, key: string, entry: Entry): void {
  kept.delete(key);
  kept.set(key, entry);
  for (const [oldest, { asking }] of kept) {
    if (kept.size <= MOST_REVIEWERS) return;
    if (asking === 0) drop(kept, oldest);
  }
}

function drop(kept: Kept, key: string): void {
  kept.get(key)?.reviewer.close();
  kept.delete(key);
}

function keyOf(tenant: string, rules: ReviewRules, digest = ''): string {
  return JSON.stringify([tenant, rules.kubeconfig, rules.audience, rules.namespace, rules.serviceAccount, digest]);
}

function same(a: ReviewRules, b: ReviewRules): boolean {
  return keyOf('', a) === keyOf('', b);
}
