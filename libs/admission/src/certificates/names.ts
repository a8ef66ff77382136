import { type Certificate, CertificateRejected } from '@isthmus/runtime';
import { isName, type Principal } from '@isthmus/tunnel';
import { readSpiffeId, type SpiffeId } from '../spiffe.ts';
import type { CertificateWay } from './ways.ts';

/**
 * The SPIFFE ID of ours in a certificate; undefined if it has none.
 * @throws CertificateRejected if it has more than one SPIFFE ID (X509-SVID section 2)
 */
export function spiffeIdOf({ names }: Certificate): SpiffeId | undefined {
  const ids = (names?.uris ?? []).filter((uri) => /^spiffe:/i.test(uri));
  if (ids.length > 1) throw new CertificateRejected(`it has ${ids.length} SPIFFE IDs: issue it with one`);
  return ids[0] === undefined ? undefined : readSpiffeId(ids[0]);
}

/**
 * The name that a certificate gives to its owner, as a way in asks for it.
 * @throws CertificateRejected if it gives none, or one of another tenant or role
 */
export function nameIn(
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
