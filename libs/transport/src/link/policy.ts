import { isName } from '@isthmus/tunnel';
import { isRecord } from '@isthmus/wire';

/** One rule about what callers may dial: a prefix, or a host pattern, or neither, which means every destination. */
export interface PolicyRule {
  /** Named in refusals. */
  readonly name?: string;
  readonly cidr?: string;
  readonly host?: string;
  /** Default: all. */
  readonly ports?: readonly number[];
  /** The callers it applies to, by name. Default: all. */
  readonly callers?: readonly string[];
}

/** What the callers of a tenant may dial, as its file says. `deny` wins. With `allow`, only what it lists. */
export interface PolicyRules {
  readonly deny?: readonly PolicyRule[];
  readonly allow?: readonly PolicyRule[];
}

/** From a hub to its agent: the dial rules of the agent's tenant, all of them, at the start of the link and at each change. */
export type PolicyMessage = { readonly type: 'policy' } & PolicyRules;

/** Rules in a list, and ports or callers of a rule: as many as a tenant's file may have. */
const MAX_ENTRIES = 1000;

/**
 * Returns a policy message with nothing but its own fields, or undefined if it is malformed. The agent checks prefixes and patterns when it
 * uses them.
 */
export function readPolicy({ deny, allow }: Readonly<Record<string, unknown>>): PolicyMessage | undefined {
  const [denied, allowed] = [readRules(deny), readRules(allow)];
  if (denied === null || allowed === null) return undefined;
  return { type: 'policy', ...(denied && { deny: denied }), ...(allowed && { allow: allowed }) };
}

/** Returns null for anything but a list of rules. */
function readRules(value: unknown): PolicyRule[] | undefined | null {
  if (value === undefined) return undefined;
  if (!Array.isArray(value) || value.length > MAX_ENTRIES) return null;
  const rules: PolicyRule[] = [];
  for (const item of value) {
    const rule = readRule(item);
    if (!rule) return null;
    rules.push(rule);
  }
  return rules;
}

function readRule(value: unknown): PolicyRule | undefined {
  if (!isRecord(value)) return undefined;
  const { name, cidr, host, ports, callers } = value;
  // A rule without any of them would match every destination. Only a later version could mean something else by it.
  if (cidr === undefined && host === undefined && ports === undefined) return undefined;
  if (cidr !== undefined && host !== undefined) return undefined;
  if (![name, cidr, host].every((text) => text === undefined || isText(text))) return undefined;
  if (!isListOf(ports, isPort) || !isListOf(callers, isText)) return undefined;
  return {
    ...(name !== undefined && { name: name as string }),
    ...(cidr !== undefined && { cidr: cidr as string }),
    ...(host !== undefined && { host: host as string }),
    ...(ports !== undefined && { ports: ports as number[] }),
    ...(callers !== undefined && { callers: callers as string[] }),
  };
}

function isListOf(value: unknown, isItem: (item: unknown) => boolean): boolean {
  return value === undefined || (Array.isArray(value) && value.length <= MAX_ENTRIES && value.every(isItem));
}

function isText(value: unknown): boolean {
  return typeof value === 'string' && value !== '' && isName(value);
}

function isPort(value: unknown): boolean {
  return Number.isInteger(value) && (value as number) >= 1 && (value as number) <= 65_535;
}
