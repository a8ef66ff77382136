import type { AgentIdentifiers, Principal } from '@isthmus/tunnel';
import { HostPattern, Prefix } from './patterns.ts';
import type { TenantFile } from './tenant-schema.ts';

/** What an agent says of itself when it connects. */
export interface Claim {
  readonly agentId: string;
  readonly identifiers: AgentIdentifiers;
}

/** Why a credential or a claim does not stand, and the file and rule that say so. */
export interface Fault {
  /** A sentence that goes on from the principal's name: `its certificate expired at ...`. */
  readonly why: string;
  /** `acme.yaml: agents[0].certificates`. */
  readonly rule: string;
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

interface ClaimRefusal {
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

/** Credentials that a tenant's file denies, although they are valid. */
export interface Denials {
  /**
   * Where the file denies one: `deny.agents[0]`; undefined if it does not.
   * @param serials of its certificates
   */
  place(who: Pick<Principal, 'role' | 'name'>, serials: readonly string[]): string | undefined;
}

/** Of most tenants. */
const NOTHING: Denials = { place: () => undefined };

export function denialsOf(file: TenantFile['deny']): Denials {
  if (!file) return NOTHING;
  const { agents = [], callers = [], serials = [] } = file;
  const names = { agent: placesOf('agents', agents), caller: placesOf('callers', callers) };
  // As certificates' fields have it.
  const bySerial = placesOf(
    'serials',
    serials.map((each) =>
      each
        .replaceAll(':', '')
        .replace(/^0+(?=.)/, '')
        .toUpperCase(),
    ),
  );
  return {
    place({ role, name }, shown) {
      const serial = shown.find((each) => bySerial.has(each));
      return names[role].get(name) ?? (serial === undefined ? undefined : bySerial.get(serial));
    },
  };
}

function placesOf(list: string, values: readonly string[]): Map<string, string> {
  return new Map(values.map((value, index) => [value, `deny.${list}[${index}]`]));
}

/** Why an agent of a tenant may not be what it claims; undefined if it may. */
export function claimFault(
  { claims, path }: { readonly claims: Claims; readonly path: string },
  { name, shared }: Principal,
  claim: Claim,
): Fault | undefined {
  const refusal = claims.refusal(claim, name, shared);
  return refusal && { why: refusal.message, rule: `${path}: ${refusal.rule}` };
}
