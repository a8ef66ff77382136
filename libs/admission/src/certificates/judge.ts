import { type Certificate, CertificateRejected, faultOfLeaf, type Presented } from '@isthmus/runtime';
import { NotAuthorised, type Principal, printable } from '@isthmus/tunnel';
import type { Proven } from '../authority.ts';
import type { Fault, Standing } from '../grants.ts';
import type { SpiffeId } from '../spiffe.ts';
import type { Tenant, Tenants } from '../tenants.ts';
import { type Chain, verifyChain } from './chain.ts';
import { nameIn, spiffeIdOf } from './names.ts';
import type { TrustSet } from './trust-set.ts';
import type { CertificateWay } from './ways.ts';

type Role = Principal['role'];

/** The program's own CA bundle for each edge, as it is now; undefined if there is none. */
export type CertificateBundles = (role: Role) => TrustSet | undefined;

/** Says whose a certificate is. */
export class CertificateJudge {
  readonly #tenants: Tenants;
  readonly #bundles: CertificateBundles;
  readonly #now: () => number;

  constructor(tenants: Tenants, bundles: CertificateBundles, now: () => number) {
    this.#tenants = tenants;
    this.#bundles = bundles;
    this.#now = now;
  }

  /**
   * @param hinted the only tenant that it may be of
   * @throws NotAuthorised
   */
  judge(role: Role, shown: Presented, hinted: Tenant | undefined): Proven {
    const { leaf } = shown;
    const rejected = (error: unknown, rule?: string) => {
      if (!(error instanceof CertificateRejected)) return error;
      const text = `the client certificate of ${printable(leaf.title)}, is refused: ${printable(error.message)}`;
      return new NotAuthorised(rule === undefined ? text : `${text} (${rule})`, rule === undefined ? {} : { rule });
    };
    try {
      const fault = faultOfLeaf(leaf, { use: 'client', now: this.#now() });
      if (fault !== undefined) throw new CertificateRejected(fault);
      const id = spiffeIdOf(leaf);
      const tenant = hinted ?? this.#byId(role, id) ?? this.#byIssuer(role, shown);
      return this.#judgeAt(tenant, role, shown, leaf, id, rejected);
    } catch (error) {
      throw rejected(error, hinted && `${hinted.path}: ${role}s`);
    }
  }

  /** By the SPIFFE ID, if the tenant's file names its trust domain. */
  #byId(role: Role, id: SpiffeId | undefined): Tenant | undefined {
    const tenant = id && this.#tenants.get(id.tenant);
    return tenant?.certificates[role].some(({ trustDomain }) => trustDomain === id?.trustDomain) ? tenant : undefined;
  }

  /** By the authority that issued it, the nearest first. */
  #byIssuer(role: Role, shown: Presented): Tenant {
    const index = this.#tenants.authorities(role);
    const { authorities } = verifyChain(shown, index, this.#now());
    const owners = [...index.owners(authorities.find((id) => index.hasAuthority(id)) ?? '')];
    const [owner = '', ...others] = owners;
    const tenant = this.#tenants.get(owner);
    if (tenant && others.length === 0) return tenant;
    throw new CertificateRejected(
      `${owners.length} tenants share the authority that issued it: connect with the tenant's server name (SNI) or to its own port`,
    );
  }

  #judgeAt(
    tenant: Tenant,
    role: Role,
    shown: Presented,
    leaf: Certificate,
    id: SpiffeId | undefined,
    rejected: (error: unknown, rule: string) => unknown,
  ): Proven {
    const ways = tenant.certificates[role];
    if (ways.length === 0)
      throw rejected(
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
        if (revoked) throw rejected(new CertificateRejected(revoked.why), revoked.rule);
        return this.#named(way, tenant, role, leaf, id, chain);
      } catch (error) {
        if (chain) unnamed ??= rejected(error, way.rule);
        else untrusted ??= rejected(error, way.rule);
      }
    }
    // The name says more than that another way in does not trust the certificate.
    throw unnamed ?? untrusted;
  }

  #chain(way: CertificateWay, role: Role, shown: Presented, tenant: Tenant): Chain {
    const trust = this.#trustOf(way, role);
    if (!trust) throw new CertificateRejected(`this program has no CA bundle for ${role}s (${FLAGS[role]})`);
    const chain = verifyChain(shown, trust, this.#now());
    this.#checkNearest(chain, way, role, tenant);
    return chain;
  }

  /** The nearest authority that a tenant's file lists decides whose a certificate is, and of which role: one above may be above many. */
  #checkNearest({ authorities }: Chain, { names, trustDomain }: CertificateWay, role: Role, tenant: Tenant): void {
    const own = this.#tenants.authorities(role);
    const others = this.#tenants.authorities(role === 'agent' ? 'caller' : 'agent');
    const nearest = authorities.find((id) => own.hasAuthority(id) || others.hasAuthority(id));
    if (nearest === undefined || own.owners(nearest).has(tenant.name)) return;
    if (!own.hasAuthority(nearest) && others.owners(nearest).has(tenant.name) && (names || trustDomain !== undefined))
      return;
    const whose = own.hasAuthority(nearest) ? 'of another tenant' : `that is not of ${role}s`;
    throw new CertificateRejected(`it was issued by an authority ${whose}`);
  }

  #named(
    way: CertificateWay,
    tenant: Tenant,
    role: Role,
    leaf: Certificate,
    id: SpiffeId | undefined,
    chain: Chain,
  ): Proven {
    const name = nameIn(leaf, id, way, { tenant: tenant.name, role });
    if (way.names && !way.names.has(name))
      throw new CertificateRejected(`its name ${printable(name)} is not among the names allowed`);
    return { tenant, name, rule: way.rule, standing: this.#standing(chain, role, name, way) };
  }

  #trustOf({ trust }: CertificateWay, role: Role): TrustSet | undefined {
    return trust ?? this.#bundles(role);
  }

  /** A file may be reordered: what matters is that some way in like it is there still. */
  #standing({ authorities, signed, expires }: Chain, role: Role, name: string, by: CertificateWay): Standing {
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

/** A list revokes for all ways in of its tenant, whichever of them it stands beside. */
function revokedBy(tenant: Tenant, role: Role, { signed }: Pick<Chain, 'signed'>): Fault | undefined {
  for (const { revocations, rule } of tenant.certificates[role]) {
    const found = revocations?.find(signed);
    if (found) return { why: `the certificate with serial ${found.serial} is revoked`, rule: `${rule}.crl` };
  }
  return undefined;
}

const FLAGS = { agent: '--cluster-ca-cert', caller: '--server-ca-cert' } as const;
