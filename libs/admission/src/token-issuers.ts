import { createHash } from 'node:crypto';
import { deleteFrom, getOrPut, LruMap } from '@isthmus/runtime';
import { ADMISSION } from './defaults.ts';
import {
  claimsFault,
  isSameKey,
  keyText,
  meets,
  OtherKey,
  quoted,
  readToken,
  type SaidByToken,
  type TokenKey,
  type TokenKeys,
  TokenRejected,
  type TokenRules,
  UnknownKey,
  type VerifiedToken,
  verifyToken,
} from './tokens.ts';

/** One way in which a tenant accepts tokens: an entry `tokens` of its file, with the keys that are in force now. */
export interface TokenWay {
  readonly tenant: string;
  /** `acme.yaml: agents[0].tokens` */
  readonly rule: string;
  readonly rules: TokenRules;
  readonly keys: TokenKeys;
  /** The keys are what a URL serves, which may be anybody's; not those of a file, which no two tenants have by accident. */
  readonly published?: boolean;
  /** Whether other tenants may accept the same tokens. */
  readonly shared?: boolean;
}

/** A token that was verified, and by what. It holds nothing with which anybody could connect. */
interface TokenProof extends VerifiedToken, Pick<TokenWay, 'tenant' | 'rule' | 'rules'> {
  readonly key: TokenKey;
}

const SEVERAL =
  'tenants with this issuer cannot be told apart by it: connect with the server name of the tenant, or to its own port';

const UNSIGNED = 'its signature does not match';

/** Stands for every id that a token may give to a key that has none of its issuer's. */
const ANY_ID = Symbol('any key id');

type KeyId = string | typeof ANY_ID;

/** The issuers of all tenants: finds the tenant that a token is of, and verifies it by a few of that tenant's keys. */
export class TokenIssuers {
  readonly #ofTenant = new Map<string, readonly TokenWay[]>();
  /** By issuer, then by key id. Kubernetes clusters often share an issuer's name, and never a key. */
  readonly #byKey = new Map<string, Map<KeyId, Set<TokenWay>>>();
  readonly #ofIssuer = new Map<string, Set<TokenWay>>();
  /** Digests of tokens that no key had signed, as long as no keys change. */
  readonly #failed = new LruMap<string, true>(ADMISSION.failedTokens);
  #changes = 0;

  /** Replaces all ways of a tenant. */
  put(tenant: string, ways: readonly TokenWay[]): void {
    this.#changes++;
    this.#failed.clear();
    for (const way of this.#ofTenant.get(tenant) ?? []) this.#remove(way);
    if (ways.length === 0) this.#ofTenant.delete(tenant);
    else this.#ofTenant.set(tenant, ways);
    for (const way of ways) this.#add(way);
  }

  /** The ways that a token may be accepted by, as it says. @param tenant whose it must be; undefined if nothing says that */
  waysFor({ issuer }: SaidByToken, tenant: string | undefined): TokenWay[] {
    if (tenant === undefined) return [...(this.#ofIssuer.get(issuer) ?? [])];
    return (this.#ofTenant.get(tenant) ?? []).filter(({ rules }) => rules.issuer === issuer);
  }

  /**
   * @param tenant whose it must be; undefined if nothing else says that
   * @throws TokenRejected, UnknownKey
   */
  async verify(token: string, tenant: string | undefined): Promise<TokenProof> {
    const said = readToken(token);
    const digest = createHash('sha256')
      .update(`${tenant ?? ''} ${token}`)
      .digest('base64');
    if (this.#failed.has(digest)) throw new OtherKey(UNSIGNED);
    const asOf = this.#changes;
    for (const candidates of this.#candidates(said, tenant)) {
      if (!candidates) throw new TokenRejected(SEVERAL);
      const signing = await signers(token, candidates);
      if (signing.length === 0) continue;
      const way = this.#decided(said, tenant, signing);
      const { verified, key } = signing.find(({ ways }) => ways.includes(way)) as Signer;
      return { ...verified, key, tenant: way.tenant, rule: way.rule, rules: way.rules };
    }
    if (asOf === this.#changes) this.#failed.set(digest, true);
    throw new OtherKey(UNSIGNED);
  }

  /** Whether a token that was verified would be verified now, but for its expiry. */
  stands({ tenant, rules, subject, key }: TokenProof): boolean {
    const claims = { issuer: rules.issuer, audiences: [rules.audience], subject };
    return (this.#ofTenant.get(tenant) ?? []).some(
      (way) => meets(claims, way.rules) && way.keys.some((each) => isSameKey(each, key)),
    );
  }

  /**
   * Keys that may have signed the token: those with its key id, then those that a token may call by any id. Cheap, and few. Undefined stands
   * for too many.
   * @throws TokenRejected, UnknownKey
   */
  #candidates(said: SaidByToken, tenant: string | undefined): (Candidate[] | undefined)[] {
    const { issuer, keyId } = said;
    const byKey = this.#byKey.get(issuer);
    const among = (id: KeyId) => (tenant === undefined ? (byKey?.get(id) ?? []) : (this.#ofTenant.get(tenant) ?? []));
    const all = keyId === undefined ? this.waysFor(said, tenant) : among(keyId);
    const candidates = (ways: Iterable<TokenWay>, fits: (key: TokenKey) => boolean) =>
      candidatesOf(meeting(said, ways), fits, tenant !== undefined);
    const stages = [
      candidates(all, ({ id }) => keyId === undefined || id === keyId),
      keyId === undefined ? [] : candidates(among(ANY_ID), ({ id, named }) => !named && id !== keyId),
    ].filter((found) => found?.length !== 0);
    if (stages.length === 0) throw this.#refusal(said, tenant);
    return stages;
  }

  /**
   * Chooses the way that accepts a token, among those whose keys have signed it. A file's keys decide before those that a URL serves: the
   * URL's server can publish another tenant's key. So without a hint, what a URL serves proves nothing while another tenant wants such tokens.
   * @throws TokenRejected
   */
  #decided(said: SaidByToken, tenant: string | undefined, signing: readonly Candidate[]): TokenWay {
    const ways = signing.flatMap((candidate) => candidate.ways);
    const filed = ways.filter(({ published }) => !published);
    const [way, ...rivals] = (filed.length > 0 ? filed : ways) as [TokenWay, ...TokenWay[]];
    const ofOthers = (each: TokenWay) => each.tenant !== way.tenant;
    if (rivals.some(ofOthers)) throw new TokenRejected(SEVERAL);
    if (!way.published) return way;
    const others = [...meeting(said, this.#ofIssuer.get(said.issuer) ?? [])].filter(ofOthers);
    if (tenant === undefined && others.length > 0) throw new TokenRejected(SEVERAL);
    const owned = others.some(
      ({ published, keys, shared }) =>
        !published && !(shared && way.shared) && keys.some((key) => signing.some((each) => isSameKey(key, each.key))),
    );
    if (owned) throw new TokenRejected("the key that signed it is in another tenant's file");
    return way;
  }

  #refusal(said: SaidByToken, tenant: string | undefined): TokenRejected {
    const ways = this.waysFor(said, tenant);
    const [way, ...more] = ways;
    if (!way) return new TokenRejected(`its issuer ${quoted(said.issuer)} is not one of ${whose(tenant)}`);
    if (ways.some(({ rules }) => meets(said, rules)))
      return new UnknownKey(`none of the issuer's keys has its key id (${quoted(said.keyId ?? '')})`);
    return new TokenRejected(
      more.length === 0 ? claimsFault(said, way.rules) : 'no tenant of its issuer wants such a token',
    );
  }

  #add(way: TokenWay): void {
    getOrPut(this.#ofIssuer, way.rules.issuer, () => new Set()).add(way);
    const byKey = getOrPut(this.#byKey, way.rules.issuer, () => new Map<KeyId, Set<TokenWay>>());
    for (const id of keyIds(way)) getOrPut(byKey, id, () => new Set()).add(way);
  }

  #remove(way: TokenWay): void {
    const { issuer } = way.rules;
    deleteFrom(this.#ofIssuer, issuer, way);
    const byKey = this.#byKey.get(issuer);
    if (!byKey) return;
    for (const id of keyIds(way)) deleteFrom(byKey, id, way);
    if (byKey.size === 0) this.#byKey.delete(issuer);
  }
}

/** A key that has signed a token. */
interface Signer extends Candidate {
  readonly verified: VerifiedToken;
}

function* meeting(said: SaidByToken, ways: Iterable<TokenWay>): Iterable<TokenWay> {
  for (const way of ways) if (meets(said, way.rules)) yield way;
}

/**
 * Those whose key has signed the token. Further ones are tried for other tenants' sake: a token that is of several is of none.
 * Rejects with TokenRejected if no key would do.
 */
async function signers(token: string, candidates: readonly Candidate[]): Promise<Signer[]> {
  const several = new Set(candidates.flatMap(({ ways }) => ways.map(({ tenant }) => tenant))).size > 1;
  const signing: Signer[] = [];
  for (const candidate of candidates) {
    const [way] = candidate.ways as [TokenWay];
    try {
      signing.push({ ...candidate, verified: await verifyToken(token, way.rules, candidate.key) });
      if (!several) break;
    } catch (error) {
      if (!(error instanceof OtherKey)) throw error;
    }
  }
  return signing;
}

function keyIds({ keys }: TokenWay): KeyId[] {
  const ids: KeyId[] = keys.flatMap(({ id }) => id ?? []);
  return keys.some(({ named }) => !named) ? [...ids, ANY_ID] : ids;
}

function whose(tenant: string | undefined): string {
  if (tenant !== undefined) return `tenant ${tenant}`;
  return 'any tenant, and neither server name nor port nor --tenant says whose token it is';
}

/** A key that may have signed a token, and the ways of tenants' files that accept what it signs. */
interface Candidate {
  readonly key: TokenKey;
  readonly ways: TokenWay[];
}

/**
 * Lists the keys of these ways, each once. Undefined: there are keys of more tenants than are tried.
 * @param known whether the ways are of one tenant, which the agent's way to the hub has chosen
 */
function candidatesOf(
  ways: Iterable<TokenWay>,
  fits: (key: TokenKey) => boolean,
  known: boolean,
): Candidate[] | undefined {
  const found = new Map<string, Candidate>();
  const left = new Map<string, number>();
  const tenants = new Set<string>();
  for (const way of ways) {
    let more = left.get(way.tenant) ?? (known ? ADMISSION.keysOfKnownTenant : ADMISSION.keysOfTenant);
    for (const key of more > 0 ? way.keys : []) {
      if (!fits(key)) continue;
      const { ways: accepting } = getOrPut(found, keyText(key), () => ({ key, ways: [] }));
      // Tenants that share a key cost one verification together.
      if (accepting.length === 0 && tenants.add(way.tenant).size > ADMISSION.tenantsOfToken) return undefined;
      accepting.push(way);
      if (--more === 0) break;
    }
    left.set(way.tenant, more);
  }
  return [...found.values()];
}
