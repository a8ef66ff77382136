import type { CertificateWay } from './certificates/ways.ts';
import type { Claimed } from './clashes.ts';
import type { Credentials } from './credentials.ts';
import { canonical } from './server-names.ts';
import type { TenantFile } from './tenant-file/schema.ts';
import { quoted } from './tokens/claims.ts';
import { keyText } from './tokens/keys.ts';
import { REVIEW_DEFAULTS } from './tokens/review-rules.ts';

/** A tenant as far as others must not have the same. */
interface Claimant {
  readonly path: string;
  readonly file: TenantFile;
  readonly credentials: Credentials;
  readonly certificates: Readonly<Record<'agent' | 'caller', readonly CertificateWay[]>>;
}

/** Lists what no other tenant may have, unless both say that they share it. */
export function claimedBy(tenant: Claimant): Claimed[] {
  const { file, certificates, path } = tenant;
  const { server, agents = [], callers = [] } = file;
  const claimed: Claimed[] = [{ what: `tenant ${file.tenant}`, at: 'tenant' }];
  for (const [index, name] of (server?.serverNames ?? []).entries())
    claimed.push({ what: `server name ${canonical(name)}`, at: `server.serverNames[${index}]` });
  for (const [index, { port }] of agents.entries())
    if (port !== undefined) claimed.push({ what: `agents' port ${port}`, at: `agents[${index}].port` });
  for (const [index, { port, unixSocket }] of callers.entries()) {
    if (port !== undefined) claimed.push({ what: `callers' port ${port}`, at: `callers[${index}].port` });
    if (unixSocket !== undefined)
      claimed.push({ what: `unix socket ${unixSocket}`, at: `callers[${index}].unixSocket` });
  }
  for (const { trust, shared, rule } of [...certificates.agent, ...certificates.caller])
    for (const { authorityId: id, subjectText: name } of trust?.all ?? [])
      claimed.push({
        what: `certificate authority ${name}`,
        key: id,
        at: `${rule.slice(`${path}: `.length)}.ca`,
        shared,
      });
  return [...claimed, ...tokensOf(tenant), ...reviewsOf(tenant)];
}

/**
 * Tokens that verify for two tenants would let an agent choose between them, by server name or port. Keys tell tenants apart, whatever
 * issuers are called; and so does the subject, which is the part of a key's tokens that a tenant takes.
 */
function tokensOf({ file, credentials }: Claimant): Claimed[] {
  return (file.agents ?? []).flatMap(({ tokens }, index) => {
    if (!tokens) return [];
    const { issuer, audience, subject: part, jwksUrl, shared = false } = tokens;
    const at = `agents[${index}].tokens`;
    const fix = 'let subject or audience differ, or say shared: true in both';
    const claim = (from: string, what: string, field: string): Claimed => ({
      what: `${what} of issuer ${quoted(issuer)} for audience ${quoted(audience)}`,
      key: JSON.stringify(['tokens', issuer, audience, from]),
      at: `${at}.${field}`,
      ...{ part, shared, fix },
    });
    if (jwksUrl !== undefined) return [claim(new URL(jwksUrl).href, `the key set at ${jwksUrl}`, 'jwksUrl')];
    const keys = credentials.keys(`${at}.keys`) ?? [];
    return keys.map((key) => claim(keyText(key), `token key ${quoted(key.id ?? 'without id')}`, 'keys'));
  });
}

function reviewsOf({ file, credentials }: Claimant): Claimed[] {
  return (file.agents ?? []).flatMap(({ tokenReview }, index) => {
    const at = `agents[${index}].tokenReview`;
    const server = credentials.apiServer(`${at}.kubeconfig`);
    if (!tokenReview || server === undefined) return [];
    const { audience, namespace, serviceAccount, shared = false } = { ...REVIEW_DEFAULTS, ...tokenReview };
    return {
      what: `tokenReview of ${namespace}/${serviceAccount} at ${server} for audience ${quoted(audience)}`,
      key: JSON.stringify(['tokenReview', server, audience, namespace, serviceAccount]),
      at: `${at}.kubeconfig`,
      shared,
      fix: 'let audience, namespace or serviceAccount differ, or say shared: true in both',
    };
  });
}
