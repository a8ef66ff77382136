import {
  type AgentEvidence,
  type FileProblems,
  type Proven,
  readToken,
  type SaidByToken,
  type Standing,
  type Tenant,
  TokenIssuers,
  type TokenJudge,
  TokenRejected,
  type TokenWay,
  UnknownKey,
} from '@isthmus/admission';
import { within } from '@isthmus/runtime';
import { getOrPut, NotAuthorised } from '@isthmus/tunnel';
import { TenantReviews } from './tenant-reviews.ts';
import { UrlKeys } from './url-keys.ts';

/** How often to check which URLs are due, in milliseconds. */
const CHECK_EVERY_MS = 5000;

/** For a token with an unknown key id, the URLs of at most so many tenants are fetched. More tenants need a server name or port of their own. */
const MOST_TENANTS_SOUGHT = 4;

/** How long a token waits for new keys, in milliseconds. Its agent waits for 10 s. */
const SEEK_TIMEOUT_MS = 6000;

export interface AgentTokensOptions {
  readonly tenant: (name: string) => Tenant | undefined;
  /** A path in a tenant's file as an absolute one. */
  readonly path: (named: string) => string;
  /** How long an API server's answer is valid, in milliseconds. */
  readonly rememberMs: number;
  /** How long a review may take, in milliseconds; for tests. */
  readonly reviewTimeoutMs?: number;
  /** Called when tenants have new keys without a change of their files, or when keys cannot be had. */
  readonly changed: (tenants: readonly string[]) => void;
}

/** An entry `tokens` of a tenant's file. Its keys are in files, or published at a URL. */
interface Entry {
  readonly way: TokenWay;
  readonly url: UrlKeys | undefined;
}

/** Verifies agents' tokens by the keys of the tenants' issuers, or by their own API servers. */
export class AgentTokens implements TokenJudge {
  readonly #options: AgentTokensOptions;
  readonly #issuers = new TokenIssuers();
  /** By tenant. */
  readonly #entries = new Map<string, readonly Entry[]>();
  /** By URL and the CA that verifies it: tenants with the same one share its keys. */
  readonly #urls = new Map<string, UrlKeys>();
  readonly #reviews: TenantReviews;
  readonly #timer: NodeJS.Timeout;

  constructor(options: AgentTokensOptions) {
    this.#options = options;
    this.#reviews = new TenantReviews(options);
    this.#timer = setInterval(() => this.#look(), CHECK_EVERY_MS).unref();
  }

  /** URLs whose newest keys could not be fetched. */
  get problems(): FileProblems[] {
    return [...this.#entries].flatMap(([tenant, entries]) => {
      const path = this.#options.tenant(tenant)?.path ?? tenant;
      const problems = entries.flatMap(({ way: { rule }, url }) =>
        url?.problem ? { line: 1, column: 1, at: rule.slice(path.length + 2), message: url.problem } : [],
      );
      return problems.length > 0 ? { path, problems, kept: tenant } : [];
    });
  }

  /** Call at every change of the tenants in force, before grants are reviewed. */
  update(tenants: Iterable<string>): void {
    for (const name of tenants) {
      const tenant = this.#options.tenant(name);
      this.#put(name, tenant ? this.#entriesOf(tenant) : []);
      this.#reviews.update(name, tenant);
    }
    const used = new Set([...this.#entries.values()].flatMap((entries) => entries.map(({ url }) => url)));
    for (const [key, url] of this.#urls) if (!used.has(url)) this.#urls.delete(key);
    this.#look();
  }

  async judge(evidence: AgentEvidence & { readonly token: string }, among: Tenant | undefined): Promise<Proven> {
    const { token } = evidence;
    try {
      return await this.#verified(token, among?.name);
    } catch (error) {
      if (!(error instanceof TokenRejected)) throw error;
      const reviewed = among && (await this.#reviewed(token, among, evidence));
      if (reviewed) return reviewed;
      throw new NotAuthorised(refused(error.message), among && { rule: `${among.path}: agents` });
    }
  }

  close(): void {
    clearInterval(this.#timer);
    this.#reviews.close();
    this.#entries.clear();
    this.#urls.clear();
  }

  async #verified(token: string, among: string | undefined): Promise<Proven> {
    const proof = await this.#issuers.verify(token, among).catch(async (error: unknown) => {
      if (!(error instanceof UnknownKey) || !(await this.#seek(readToken(token), among))) throw error;
      return await this.#issuers.verify(token, among);
    });
    const { rule, subject: name, expires } = proof;
    const fell = { why: 'the key or the entry that accepted its token was removed', rule };
    return this.#proven(proof.tenant, name, rule, expires, () => (this.#issuers.stands(proof) ? undefined : fell));
  }

  /** @returns undefined if no API server reviews this tenant's tokens */
  async #reviewed(token: string, tenant: Tenant, evidence: AgentEvidence): Promise<Proven | undefined> {
    const answer = await this.#reviews.check(token, tenant, evidence);
    if (!answer) return undefined;
    const { rule, rules, subject, verdict } = answer;
    if (!verdict.ok) throw new NotAuthorised(refused(verdict.message), { rule, undecided: !verdict.decided });
    const fell = { why: 'the entry that accepted its token was removed', rule };
    return this.#proven(tenant.name, subject, rule, endOf(token), (current) =>
      this.#reviews.has(current, rules) ? undefined : fell,
    );
  }

  #proven(tenant: string, name: string, rule: string, expires: number, fault: Standing['fault']): Proven {
    const found = this.#options.tenant(tenant);
    if (!found) throw new NotAuthorised(`tenant ${tenant} was removed`, { rule });
    return { tenant: found, name, rule, shared: true, standing: { expires, fault } };
  }

  /** Fetches the keys of the token's issuer, unless that was done a moment ago. @returns whether there was a URL to fetch from */
  async #seek(said: SaidByToken, tenant: string | undefined): Promise<boolean> {
    const ways = this.#issuers.waysFor(said, tenant);
    if (new Set(ways.map((way) => way.tenant)).size > MOST_TENANTS_SOUGHT) return false;
    const urls = new Set<UrlKeys>();
    for (const { tenant: of, rule } of ways)
      for (const { way, url } of this.#entries.get(of) ?? []) if (url && way.rule === rule) urls.add(url);
    const sought = [...urls].map(async (url) => (await url.seek()) && this.#renew(url));
    await within(Promise.all(sought), SEEK_TIMEOUT_MS);
    return urls.size > 0;
  }

  #entriesOf({ name: tenant, path, file, credentials }: Tenant): Entry[] {
    return (file.agents ?? []).flatMap(({ tokens }, index) => {
      if (!tokens) return [];
      const { issuer, audience, subject, jwksUrl, shared = false } = tokens;
      const at = `agents[${index}].tokens`;
      const rules = { issuer, audience, ...(subject !== undefined && { subject }) };
      const url = jwksUrl === undefined ? undefined : this.#urlOf(jwksUrl, credentials.text(`${at}.ca`));
      const keys = credentials.keys(`${at}.keys`) ?? [];
      return { way: { tenant, rule: `${path}: ${at}`, rules, keys, published: url !== undefined, shared }, url };
    });
  }

  #urlOf(url: string, ca: string | undefined): UrlKeys {
    return getOrPut(this.#urls, JSON.stringify([url, ca]), () => new UrlKeys({ url, ...(ca !== undefined && { ca }) }));
  }

  #put(tenant: string, entries: readonly Entry[]): void {
    if (entries.length === 0) this.#entries.delete(tenant);
    else this.#entries.set(tenant, entries);
    this.#issuers.put(
      tenant,
      entries.map(({ way, url }) => (url ? { ...way, keys: url.keys } : way)),
    );
  }

  #look(): void {
    for (const url of this.#urls.values()) void url.look().then((changed) => changed && this.#renew(url));
  }

  /** A URL has new keys, or a new problem. */
  #renew(url: UrlKeys): void {
    const tenants: string[] = [];
    for (const [tenant, entries] of this.#entries) {
      if (!entries.some((entry) => entry.url === url)) continue;
      this.#put(tenant, entries);
      tenants.push(tenant);
    }
    this.#options.changed(tenants);
  }
}

function refused(why: string): string {
  return `the token was not accepted: ${why}`;
}

/** Returns when a token expires, if it says so. The API server has verified it. */
function endOf(token: string): number {
  try {
    return readToken(token).expires ?? Number.POSITIVE_INFINITY;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
