import type { AgentIdentifiers, Principal } from '@isthmus/tunnel';
import { type Address, HostPattern, Prefix, readAddress } from './patterns.ts';
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

/**
 * Says why a claim goes beyond what the credential and the tenant's file allow; undefined if it does not. The rule is a place in the file:
 * `claims.cidr`.
 */
export type Claims = (claim: Claim, owner: Pick<Principal, 'name' | 'shared'>) => Fault | undefined;

type ClaimsFile = NonNullable<TenantFile['claims']>;

/** @param file undefined: the agent's own id, or any if it shares its credential, and default-route */
export function claimsOf(file?: ClaimsFile): Claims {
  return file ? claimsIn(file) : BY_DEFAULT;
}

function claimsIn(file: ClaimsFile): Claims {
  const prefixes = [...(file.cidr ?? []), ...(file.ipv4 ?? []), ...(file.ipv6 ?? [])].map((each) => new Prefix(each));
  const patterns = (file.host ?? []).map((each) => new HostPattern(each));
  const { defaultRoute = true } = file;
  // Read once, and not for each of 3,000 prefixes: an agent may claim 256 addresses.
  const within = (address: Address) => prefixes.some((prefix) => prefix.has(address));
  const address = (text: string) => prefixes.length > 0 && within(readAddress(text));
  const network = (text: string) => {
    const claimed = prefixOf(text);
    return claimed !== undefined && prefixes.some((prefix) => prefix.covers(claimed));
  };
  const host = (text: string) => patterns.some((pattern) => pattern.has(text));
  const beyond = (kind: string, texts: readonly string[], allowed: (text: string) => boolean) => {
    const found = texts.find((text) => !allowed(text));
    const rule = `claims.${kind}`;
    return found === undefined ? undefined : { rule, why: `${kind}=${found} is not covered by ${rule}` };
  };
  return ({ agentId, identifiers }, { name, shared = false }) => {
    const id = file.agentId ?? (shared ? 'any' : 'own');
    if (!mayBe(id, agentId, name))
      return { rule: 'claims.agentId', why: `agent id ${agentId} is not ${name}: claims.agentId is ${id}` };
    if (identifiers.defaultRoute && !defaultRoute)
      return { rule: 'claims.defaultRoute', why: 'default-route=true, and claims.defaultRoute is false' };
    return (
      beyond('ipv4', identifiers.ipv4, address) ??
      beyond('ipv6', identifiers.ipv6, address) ??
      beyond('cidr', identifiers.cidr, network) ??
      beyond('host', identifiers.host, host)
    );
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

/**
 * Says where a tenant's file denies a credential that is valid: `deny.agents[0]`; undefined if it does not.
 * @param serials of its certificates
 */
export type Denials = (who: Pick<Principal, 'role' | 'name'>, serials: readonly string[]) => string | undefined;

/** Of most tenants. */
const NOTHING: Denials = () => undefined;

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
  return ({ role, name }, shown) => {
    const serial = shown.find((each) => bySerial.has(each));
    return names[role].get(name) ?? (serial === undefined ? undefined : bySerial.get(serial));
  };
}

function placesOf(list: string, values: readonly string[]): Map<string, string> {
  return new Map(values.map((value, index) => [value, `deny.${list}[${index}]`]));
}

/** Why an agent of a tenant may not be what it claims; undefined if it may. */
export function claimFault(
  { claims, path }: { readonly claims: Claims; readonly path: string },
  principal: Principal,
  claim: Claim,
): Fault | undefined {
  const fault = claims(claim, principal);
  return fault && { ...fault, rule: `${path}: ${fault.rule}` };
}
