import { get as httpGet } from 'node:http';
import { get as httpsGet } from 'node:https';
import { answerTo, Backoff, getOrPut, httpsAgent, Semaphore, wholeOf, within } from '@isthmus/runtime';
import { NotAuthorised } from '@isthmus/tunnel';
import { ADMISSION } from './defaults.ts';
import type { Proven, Validity } from './grants.ts';
import type { ShownToken, TokenJudge } from './identify.ts';
import type { FileProblems, Tenant } from './tenants.ts';
import { TokenIssuers, type TokenWay } from './token-issuers.ts';
import { TenantReviews, type TenantReviewsOptions } from './token-reviews.ts';
import {
  NoJwt,
  readToken,
  readTokenKeys,
  type SaidByToken,
  type TokenKeys,
  TokenRejected,
  UnknownKey,
} from './tokens.ts';

/**
 * Fetches what an issuer publishes. Follows no redirect, because the file says whom to trust.
 * @param ca the CA bundle that verifies the URL, PEM. Undefined: the system's
 */
async function fetchKeys(url: string, ca: string | undefined): Promise<string> {
  const { keysFetchMs: timeout } = ADMISSION;
  // The connection is closed with the request. Otherwise it would stay open until the next fetch, minutes later.
  const options = { headers: { accept: 'application/json', 'user-agent': 'isthmus' } };
  const request = url.startsWith('https:')
    ? httpsGet(url, { ...options, agent: httpsAgent({ ca }, [new URL(url).hostname]) })
    : httpGet(url, { ...options, agent: false });
  const end = new AbortController();
  const late = setTimeout(() => end.abort(new Error(`no answer within ${timeout / 1000} s`)), timeout);
  try {
    const response = await answerTo(request, end.signal);
    const { statusCode, headers } = response;
    if (headers.location !== undefined && statusCode !== 200)
      throw new Error(`it redirects to ${headers.location}: put the URL into the file that answers itself`);
    if (statusCode !== 200) throw new Error(`it answered with status ${statusCode}`);
    return (await wholeOf(response, ADMISSION.keysAnswerBytes)).toString();
  } finally {
    clearTimeout(late);
    request.destroy();
  }
}

/** Of all tenants. */
const fetches = new Semaphore(ADMISSION.keysFetches, ADMISSION.keysFetchesOfTenant);

/** The keys that an issuer publishes. While the newest cannot be fetched, the last good ones stay in force. */
class UrlKeys {
  keys: TokenKeys = [];
  /** Why the newest keys cannot be used. Empty if they can. */
  problem = '';
  readonly #url: string;
  readonly #ca: string | undefined;
  readonly #backoff = new Backoff(ADMISSION.keysAgainMs, ADMISSION.keysMs);
  #text = '';
  #next = Number.NEGATIVE_INFINITY;
  #last = Number.NEGATIVE_INFINITY;
  #fetching: Promise<boolean> | undefined;

  constructor(url: string, ca: string | undefined) {
    this.#url = url;
    this.#ca = ca;
  }

  /** Fetches them if it is time, in the turn of a tenant. @returns whether the keys or the problem changed */
  async look(tenant: string): Promise<boolean> {
    return performance.now() >= this.#next && this.#fetch(tenant);
  }

  /** Fetches them for a token with an unknown key id, unless that was done a moment ago. @returns as `look` */
  async seek(tenant: string): Promise<boolean> {
    if (this.#fetching) return this.#fetching;
    return performance.now() >= this.#last + ADMISSION.keysAgainMs && this.#fetch(tenant);
  }

  #fetch(tenant: string): Promise<boolean> {
    this.#fetching ??= fetches
      .take(() => this.#try(), tenant)
      .finally(() => {
        this.#last = performance.now();
        this.#fetching = undefined;
      });
    return this.#fetching;
  }

  async #try(): Promise<boolean> {
    const before = this.problem;
    try {
      const text = await fetchKeys(this.#url, this.#ca);
      const same = text === this.#text;
      if (!same) this.keys = await readTokenKeys(text);
      this.#text = text;
      this.problem = '';
      this.#backoff.reset();
      this.#next = performance.now() + ADMISSION.keysMs * (0.9 + Math.random() / 10);
      return !same || before !== '';
    } catch (error) {
      this.problem = `${this.#url}: ${(error as Error).message}`;
      this.#next = performance.now() + this.#backoff.next();
      return this.problem !== before;
    }
  }
}

interface TenantTokensOptions extends TenantReviewsOptions {
  readonly tenant: (name: string) => Tenant | undefined;
  /** Called when tenants have new keys without a change of their files, or when keys cannot be had. */
  readonly changed: (tenants: readonly string[]) => void;
}

/** An entry `tokens` of a tenant's file. Its keys are in files, or published at a URL. */
interface Entry {
  /** `agents[0].tokens` */
  readonly at: string;
  readonly way: TokenWay;
  readonly url: UrlKeys | undefined;
}

/** Verifies agents' tokens, or callers', by the keys of the tenants' issuers, or by their own API servers. */
export class TenantTokens implements TokenJudge {
  readonly #options: TenantTokensOptions;
  readonly #issuers = new TokenIssuers();
  /** By tenant. */
  readonly #entries = new Map<string, readonly Entry[]>();
  /** By URL and the CA that verifies it: tenants with the same one share its keys. */
  readonly #urls = new Map<string, UrlKeys>();
  /** In whose turn a URL is fetched: of its tenants, the one with the fewest entries. So nobody delays another's by naming it. */
  readonly #turns = new Map<UrlKeys, string>();
  readonly #reviews: TenantReviews;
  readonly #timer: NodeJS.Timeout;

  constructor(options: TenantTokensOptions) {
    this.#options = options;
    this.#reviews = new TenantReviews(options);
    this.#timer = setInterval(() => this.#look(), ADMISSION.keysLookMs).unref();
  }

  /** URLs whose newest keys could not be fetched. */
  get problems(): FileProblems[] {
    return [...this.#entries].flatMap(([tenant, entries]) => {
      const path = this.#options.tenant(tenant)?.path ?? tenant;
      const problems = entries.flatMap(({ at, url }) =>
        url?.problem ? { line: 1, column: 1, at, message: url.problem } : [],
      );
      return problems.length > 0 ? { path, problems, kept: tenant, newest: true } : [];
    });
  }

  /** Call at every change of the tenants in force, before grants are reviewed. */
  update(tenants: Iterable<string>): void {
    for (const name of tenants) {
      const tenant = this.#options.tenant(name);
      this.#put(name, tenant ? this.#entriesOf(tenant) : []);
      this.#reviews.update(name, tenant);
    }
    this.#turns.clear();
    for (const [tenant, entries] of [...this.#entries].sort(([, a], [, b]) => a.length - b.length))
      for (const { url } of entries) if (url && !this.#turns.has(url)) this.#turns.set(url, tenant);
    for (const [key, url] of this.#urls) if (!this.#turns.has(url)) this.#urls.delete(key);
    this.#look();
  }

  async judge(evidence: ShownToken, among: Tenant | undefined): Promise<Proven> {
    try {
      return await this.#verified(evidence.token, among?.name);
    } catch (error) {
      if (!(error instanceof TokenRejected)) throw error;
      const reviewed = among && (await this.#reviewed(evidence, among));
      if (reviewed) return reviewed;
      const mistyped = error instanceof NoJwt && this.#options.role === 'caller';
      const why = mistyped ? `it is not a token of ${among ? 'this' : 'any'} tenant` : error.message;
      throw new NotAuthorised(refused(why), among && { rule: `${among.path}: ${this.#options.role}s` });
    }
  }

  close(): void {
    clearInterval(this.#timer);
    this.#reviews.close();
    this.#entries.clear();
    this.#urls.clear();
    this.#turns.clear();
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
  async #reviewed(shown: ShownToken, tenant: Tenant): Promise<Proven | undefined> {
    const answer = await this.#reviews.check(shown, tenant);
    if (!answer) return undefined;
    const { rule, rules, verdict } = answer;
    if (!verdict.ok) throw new NotAuthorised(refused(verdict.message), { rule, undecided: !verdict.reviewed });
    const fell = { why: 'the entry that accepted its token was removed', rule };
    return this.#proven(tenant.name, verdict.user, rule, endOf(shown.token), (current) =>
      this.#reviews.has(current, rules) ? undefined : fell,
    );
  }

  #proven(tenant: string, name: string, rule: string, expires: number, fault: Validity['fault']): Proven {
    const found = this.#options.tenant(tenant);
    if (!found) throw new NotAuthorised(`tenant ${tenant} was removed`, { rule });
    return { tenant: found, name, rule, shared: true, validity: { expires, fault } };
  }

  /** Fetches the keys of the token's issuer, unless that was done a moment ago. @returns whether there was a URL to fetch from */
  async #seek(said: SaidByToken, tenant: string | undefined): Promise<boolean> {
    const ways = this.#issuers.waysFor(said, tenant);
    if (new Set(ways.map((way) => way.tenant)).size > ADMISSION.tenantsSought) return false;
    const urls = new Set<UrlKeys>();
    for (const { tenant: of, rule } of ways)
      for (const { way, url } of this.#entries.get(of) ?? []) if (url && way.rule === rule) urls.add(url);
    const sought = [...urls].map(async (url) => (await url.seek(this.#turns.get(url) as string)) && this.#renew(url));
    await within(Promise.all(sought), ADMISSION.keysWaitMs);
    return urls.size > 0;
  }

  #entriesOf({ name: tenant, path, file, credentials }: Tenant): Entry[] {
    const list = `${this.#options.role}s` as const;
    return (file[list] ?? []).flatMap(({ tokens }, index) => {
      if (!tokens) return [];
      const { issuer, audience, subject, jwksUrl, shared = false } = tokens;
      const at = `${list}[${index}].tokens`;
      const rules = { issuer, audience, ...(subject !== undefined && { subject }) };
      const ca = credentials.file(`${at}.ca`).text;
      const published = (from: string) => getOrPut(this.#urls, JSON.stringify([from, ca]), () => new UrlKeys(from, ca));
      const url = jwksUrl === undefined ? undefined : published(jwksUrl);
      const keys = credentials.file(`${at}.keys`).keys ?? [];
      return { at, way: { tenant, rule: `${path}: ${at}`, rules, keys, published: url !== undefined, shared }, url };
    });
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
    for (const [url, tenant] of this.#turns) void url.look(tenant).then((changed) => changed && this.#renew(url));
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
