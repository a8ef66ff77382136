import type { AgentIdentifiers } from '@isthmus/tunnel';
import { HostPattern, Prefix } from './patterns.ts';
import type { TenantFile } from './tenant-file/schema.ts';

/** What an agent says of itself when it connects. */
export interface Claim {
  readonly agentId: string;
  readonly identifiers: AgentIdentifiers;
}

/** What an agent of a tenant may claim. */
export interface Claims {
  /**
   * Says why a claim goes beyond what the credential and the tenant's file allow; undefined if it does not.
   * @param owned the id that the credential names
   * @param shared whether several agents hold the credential, such as a service account's token
   */
  refusal(claim: Claim, owned: string, shared?: boolean): ClaimRefusal | undefined;
}

export interface ClaimRefusal {
  readonly message: string;
  /** In the tenant's file: `claims.cidr`. */
  readonly rule: string;
}

type ClaimsFile = NonNullable<TenantFile['claims']>;

/** @param file undefined: the agent's own id, or any if it shares its credential, and default-route */
export function claimsOf(file?: ClaimsFile): Claims {
  return file ? claimsIn(file) : BY_DEFAULT;
}

function claimsIn(file: ClaimsFile): Claims {
  const prefixes = [...(file.cidr ?? []), ...(file.ipv4 ?? []), ...(file.ipv6 ?? [])].map((each) => new Prefix(each));
  const patterns = (file.host ?? []).map((each) => new HostPattern(each));
  const { defaultRoute = true } = file;
  const address = (text: string) => prefixes.some((prefix) => prefix.has(text));
  const network = (text: string) => {
    const claimed = prefixOf(text);
    return claimed !== undefined && prefixes.some((prefix) => prefix.covers(claimed));
  };
  const host = (text: string) => patterns.some((pattern) => pattern.has(text));
  const beyond = (kind: string, texts: readonly string[], allowed: (text: string) => boolean) => {
    const found = texts.find((text) => !allowed(text));
    const rule = `claims.${kind}`;
    return found === undefined ? undefined : { rule, message: `${kind}=${found} is not covered by ${rule}` };
  };
  return {
    refusal({ agentId, identifiers }, owned, shared = false) {
      const id = file.agentId ?? (shared ? 'any' : 'own');
      if (!mayBe(id, agentId, owned))
        return { rule: 'claims.agentId', message: `agent id ${agentId} is not ${owned}: claims.agentId is ${id}` };
      if (identifiers.defaultRoute && !defaultRoute)
        return { rule: 'claims.defaultRoute', message: 'default-route=true, and claims.defaultRoute is false' };
      return (
        beyond('ipv4', identifiers.ipv4, address) ??
        beyond('ipv6', identifiers.ipv6, address) ??
        beyond('cidr', identifiers.cidr, network) ??
        beyond('host', identifiers.host, host)
      );
    },
  };
}

const BY_DEFAULT = claimsIn({});

function mayBe(rule: NonNullable<ClaimsFile['agentId']>, agentId: string, owned: string): boolean {
  if (rule === 'any' || agentId === owned) return true;
  return rule === 'prefixed' && agentId.startsWith(`${owned}-`);
}

function prefixOf(text: string): Prefix | undefined {
  try {
    return new Prefix(text);
  } catch {
    return undefined;
  }
}
