import {
  type Certificate,
  CertificateRejected,
  chainsOf,
  faultOfLeaf,
  type Presented,
  printable,
  type Trust,
} from '@isthmus/runtime';
import { isName, NotAuthorised, type Principal } from '@isthmus/tunnel';
import type { Signed, TrustSet } from './certificate-trust.ts';
import type { Fault } from './claims.ts';
import type { CertificateWay } from './credentials.ts';
import type { Proven, Validity } from './grants.ts';
import type { Tenant, Tenants } from './tenants.ts';

/** A client's certificate that was verified, with the authorities above it. */
interface Chain {
  readonly leaf: Certificate;
  /** Milliseconds since the epoch: when the first of its certificates expires. */
  readonly expires: number;
  /** Authorities from the one that signed it upwards, on all ways to one that is trusted; the shortest way comes first. */
  readonly authorities: readonly string[];
  /** What a list of revoked certificates could name: by authority, the serial that it signed. */
  readonly signed: readonly Signed[];
}

/**
 * Verifies a client's certificate against the authorities of one tenant alone: TLS has verified it against nothing.
 * @throws CertificateRejected
 */
export function verifyChain(presented: Presented, trust: Trust, now: number): Chain {
  const chains = [...chainsOf(presented, trust, { use: 'client', now })];
  const signed = new Map<string, Signed>();
  for (const chain of chains)
    for (const [below, { authorityId: authority }] of chain.slice(1).entries()) {
      const { serial } = chain[below] as Certificate;
      signed.set(`${authority} ${serial}`, { authority, serial });
    }
  return {
    leaf: presented.leaf,
    expires: Math.min(...(chains[0] ?? []).map(({ validTo }) => validTo)),
    authorities: [...new Set([...signed.values()].map(({ authority }) => authority))],
    signed: [...signed.values()],
  };
}

/**
 * The SPIFFE ID of ours in a certificate; undefined if it has none.
 * @throws CertificateRejected if it has more than one SPIFFE ID (X509-SVID section 2)
 */
function spiffeIdOf({ names }: Certificate): SpiffeId | undefined {
  const ids = (names?.uris ?? []).filter((uri) => /^spiffe:/i.test(uri));
  if (ids.length > 1) throw new CertificateRejected(`it has ${ids.length} SPIFFE IDs: issue it with one`);
  return ids[0] === undefined ? undefined : readSpiffeId(ids[0]);
}

/**
 * The name that a certificate gives to its owner, as a way in asks for it.
 * @throws CertificateRejected if it gives none, or one of another tenant or role
 */
function nameIn(
  { commonNames }: Certificate,
  id: SpiffeId | undefined,
  { trustDomain }: CertificateWay,
  { tenant, role }: Pick<Principal, 'tenant' | 'role'>,
): string {
  if (trustDomain !== undefined && id?.trustDomain !== trustDomain)
    throw new CertificateRejected(
      `it has no SPIFFE ID of the trust domain ${trustDomain}: issue it with the URI spiffe://${trustDomain}/tenant/${tenant}/${role}/NAME`,
    );
  if (id) {
    if (id.tenant === tenant && id.role === role) return id.name;
    throw new CertificateRejected(`its SPIFFE ID names the ${id.role} ${id.name} of tenant ${id.tenant}`);
  }
  const [name = '', ...others] = commonNames;
  if (name !== '' && others.length === 0 && isName(name)) return name;
  const why =
    others.length > 0 ? `it has ${commonNames.length} common names` : 'it has no common name that can be used';
  throw new CertificateRejected(`${why}: issue it with one, the ${role}'s name`);
}

type Role = Principal['role'];

/** The program's own CA bundle for each edge, as it is now; undefined if there is none. */
export type CertificateBundles = (role: Role) => TrustSet | undefined;

/** Says whose a certificate is. */
export class CertificateJudge {
  readonly #tenants: Tenants;
  readonly #bundles: CertificateBundles;

  constructor(tenants: Tenants, bundles: CertificateBundles) {
    this.#tenants = tenants;
    this.#bundles = bundles;
  }

  /**
   * @param hinted the only tenant that it may be of
   * @throws NotAuthorised
   */
  judge(role: Role, shown: Presented, hinted: Tenant | undefined): Proven {
    const { leaf } = shown;
    try {
      const fault = faultOfLeaf(leaf, { use: 'client', now: Date.now() });
      if (fault !== undefined) throw new CertificateRejected(fault);
      const id = spiffeIdOf(leaf);
      const tenant = hinted ?? this.#byId(role, id) ?? this.#byIssuer(role, shown);
      return this.#judgeAt(tenant, role, shown, id);
    } catch (error) {
      throw rejected(leaf, error, hinted && `${hinted.path}: ${role}s`);
    }
  }

  /** By the SPIFFE ID, if the tenant's file names its trust domain. */
  #byId(role: Role, id: SpiffeId | undefined): Tenant | undefined {
    const tenant = id && this.#tenants.get(id.tenant);
    return tenant?.certificates[role].some(({ trustDomain }) => trustDomain === id?.trustDomain) ? tenant : undefined;
  }

  /** By the authority that issued it, the nearest first. */
  #byIssuer(role: Role, shown: Presented): Tenant {
    const index = this.#tenants.authorities[role];
    const { authorities } = verifyChain(shown, index, Date.now());
    const owners = [...index.owners(authorities.find((id) => index.hasAuthority(id)) ?? '')];
    const [owner = '', ...others] = owners;
    const tenant = this.#tenants.get(owner);
    if (tenant && others.length === 0) return tenant;
    throw new CertificateRejected(
      `${owners.length} tenants share the authority that issued it: connect with the tenant's server name (SNI) or to its own port`,
    );
  }

  #judgeAt(tenant: Tenant, role: Role, shown: Presented, id: SpiffeId | undefined): Proven {
    const { leaf } = shown;
    const ways = tenant.certificates[role];
    if (ways.length === 0)
      throw rejected(
        leaf,
        new CertificateRejected(`tenant ${tenant.name} lists no certificates of ${role}s`),
        `${tenant.path}: ${role}s`,
      );
    let untrusted: unknown;
    let unnamed: unknown;
    for (const way of ways) {
      let chain: Chain | undefined;
      try {
        chain = this.#chain(way, role, shown, tenant);
        const revoked = revokedBy(tenant, role, chain);
        if (revoked) throw rejected(leaf, new CertificateRejected(revoked.why), revoked.rule);
        return this.#named(way, tenant, role, id, chain);
      } catch (error) {
        if (chain) unnamed ??= rejected(leaf, error, way.rule);
        else untrusted ??= rejected(leaf, error, way.rule);
      }
    }
    // The name says more than that another way in does not trust the certificate.
    throw unnamed ?? untrusted;
  }

  #chain(way: CertificateWay, role: Role, shown: Presented, tenant: Tenant): Chain {
    const trust = this.#trustOf(way, role);
    if (!trust) throw new CertificateRejected(`this program has no CA bundle for ${role}s (${FLAGS[role]})`);
    const chain = verifyChain(shown, trust, Date.now());
    this.#checkNearest(chain, way, role, tenant);
    return chain;
  }

  /** The nearest authority that a tenant's file lists decides whose a certificate is, and of which role: one above may be above many. */
  #checkNearest({ authorities }: Chain, { names, trustDomain }: CertificateWay, role: Role, tenant: Tenant): void {
    const own = this.#tenants.authorities[role];
    const others = this.#tenants.authorities[role === 'agent' ? 'caller' : 'agent'];
    const nearest = authorities.find((id) => own.hasAuthority(id) || others.hasAuthority(id));
    if (nearest === undefined || own.owners(nearest).has(tenant.name)) return;
    if (!own.hasAuthority(nearest) && others.owners(nearest).has(tenant.name) && (names || trustDomain !== undefined))
      return;
    const whose = own.hasAuthority(nearest) ? 'of another tenant' : `that is not of ${role}s`;
    throw new CertificateRejected(`it was issued by an authority ${whose}`);
  }

  #named(way: CertificateWay, tenant: Tenant, role: Role, id: SpiffeId | undefined, chain: Chain): Proven {
    const name = nameIn(chain.leaf, id, way, { tenant: tenant.name, role });
    if (way.names && !way.names.has(name))
      throw new CertificateRejected(`its name ${printable(name)} is not among the names allowed`);
    return { tenant, name, rule: way.rule, validity: this.#validity(chain, role, name, way) };
  }

  #trustOf({ trust }: CertificateWay, role: Role): TrustSet | undefined {
    return trust ?? this.#bundles(role);
  }

  /** A file may be reordered: what matters is that some way in like it is there still. */
  #validity({ authorities, signed, expires }: Chain, role: Role, name: string, by: CertificateWay): Validity {
    return {
      expires,
      serials: signed.map(({ serial }) => serial),
      fault: (tenant): Fault | undefined => {
        const ways = tenant.certificates[role].filter(({ trustDomain }) => trustDomain === by.trustDomain);
        const trusting = ways.filter((way) => authorities.some((id) => this.#trustOf(way, role)?.hasAuthority(id)));
        const revoked = revokedBy(tenant, role, { signed });
        if (revoked) return revoked;
        if (trusting.length === 0)
          return { why: 'the authority that issued its certificate was removed', rule: `${tenant.path}: ${role}s` };
        if (trusting.some(({ names }) => !names || names.has(name))) return undefined;
        return { why: 'its name is no longer among the names allowed', rule: `${trusting[0]?.rule}.names` };
      },
    };
  }
}

/** Says of an error about a certificate whose that is, and the rule that it does not meet. */
function rejected(leaf: Certificate, error: unknown, rule?: string): unknown {
  if (!(error instanceof CertificateRejected)) return error;
  const text = `the client certificate of ${printable(leaf.title)}, is refused: ${printable(error.message)}`;
  return rule === undefined ? new NotAuthorised(text) : new NotAuthorised(`${text} (${rule})`, { rule });
}

/** A list revokes for all ways in of its tenant, whichever of them it stands beside. */
function revokedBy(tenant: Tenant, role: Role, { signed }: Pick<Chain, 'signed'>): Fault | undefined {
  for (const { revocations, rule } of tenant.certificates[role]) {
    const found = revocations?.find(signed);
    if (found) return { why: `the certificate with serial ${found.serial} is revoked`, rule: `${rule}.crl` };
  }
  return undefined;
}

const FLAGS = { agent: '--cluster-ca-cert', caller: '--server-ca-cert' } as const;

/** What a SPIFFE ID of ours names (the URI SAN of a certificate: `spiffe://TRUST-DOMAIN/tenant/T/agent/A`). */
interface SpiffeId {
  readonly trustDomain: string;
  readonly tenant: string;
  readonly role: 'agent' | 'caller' | 'gateway';
  readonly name: string;
}

/** The longest SPIFFE ID, in bytes (SPIFFE-ID section 2.3). */
const LONGEST_ID = 2048;

const PATTERN =
  /^spiffe:\/\/([a-z0-9._-]{1,255})\/tenant\/([a-zA-Z0-9._-]+)\/(agent|caller|gateway)\/([a-zA-Z0-9._-]+)$/;

/** Reads a SPIFFE ID (SPIFFE-ID section 2). @returns undefined for a URI that is none, or one of another shape than ours */
export function readSpiffeId(uri: string): SpiffeId | undefined {
  if (uri.length > LONGEST_ID) return undefined;
  const [, trustDomain, tenant, role, name] = PATTERN.exec(uri) ?? [];
  if (trustDomain === undefined || tenant === undefined || name === undefined) return undefined;
  // Segments of dots alone are not allowed: they would be relative.
  if ([tenant, name].some((segment) => /^\.{1,2}$/.test(segment))) return undefined;
  return { trustDomain, tenant, role: role as SpiffeId['role'], name };
}

/** SPIFFE IDs that speak of tenants, also those that cannot be read: they grant nothing, and must not count as none. */
const OF_TENANTS = /^spiffe:\/\/[^/]*\/+tenant(\/|$)/i;

/**
 * The tenants for which a gateway may dial: those of its SPIFFE IDs (`spiffe://TRUST-DOMAIN/tenant/T/gateway/NAME`, one or more), if it
 * has any that speak of tenants. Undefined: it has none, and may dial for all. The listener that verified its certificate has checked its role.
 */
export function gatewayTenants({ names }: Certificate): ReadonlySet<string> | undefined {
  const uris = (names?.uris ?? []).filter((uri) => OF_TENANTS.test(uri));
  if (uris.length === 0) return undefined;
  const ids = uris.map(readSpiffeId);
  return new Set(ids.flatMap((id) => (id?.role === 'gateway' ? id.tenant : [])));
}
