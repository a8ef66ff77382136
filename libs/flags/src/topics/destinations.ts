import { type PolicyRule, type PolicyRules, type PortRange, policyOf } from '@isthmus/admission/policy';
import { DIRECT_PROHIBITIONS, PROHIBITIONS, type Prohibition } from '@isthmus/tunnel';
import { FlagError, ownTopic, strings, type Values } from '../flag.ts';

const ENTRY =
  'Entries are addresses, prefixes or host patterns, perhaps with ports: ' +
  '10.0.0.0/8, *.svc.cluster.local:443, [fd00::/8]:30000-32767, *:22 (everywhere).';

export const destinations = ownTopic('Behaviour', {
  'allow-destinations': strings(
    [],
    `The only destinations that this agent dials: a comma list. ${ENTRY} Empty: all. What ${PROHIBITIONS.join(', ')} name is refused unless this list has the name.`,
  ),
  'deny-destinations': strings(
    [],
    'Destinations that this agent does not dial, even if --allow-destinations lists them. Addresses are checked after DNS.',
  ),
});

/** What an agent dials. */
interface AgentDestinations {
  readonly lifted: readonly Prohibition[];
  /** Undefined: everything but what is prohibited. Rules have the names of their entries. */
  readonly rules: PolicyRules | undefined;
}

/** @throws FlagError */
export function parseDestinations(flags: Values<typeof destinations>): AgentDestinations {
  const { lifted, rules: allow } = listed('allow-destinations', flags['allow-destinations'], PROHIBITIONS);
  const deny = flags['deny-destinations'].map((entry) => {
    if (!PROHIBITIONS.some((name) => name === entry)) return ruleOf('deny-destinations', entry);
    throw new FlagError('deny-destinations', `${entry} are denied already, unless --allow-destinations names them`);
  });
  const rules = { ...(allow.length > 0 && { allow }), ...(deny.length > 0 && { deny }) };
  return { lifted, rules: allow.length + deny.length > 0 ? rules : undefined };
}

export const directDials = ownTopic('Behaviour', {
  'direct-destinations': strings(
    [],
    `Destinations that the gateway dials itself, without an agent: a comma list. ${ENTRY} Names are compared as the caller wrote them. What ${DIRECT_PROHIBITIONS.join(', ')} name is refused unless this list has the name. A tenant's file (dial.direct) chooses a part of the list.`,
  ),
});

/** Returns what a gateway dials itself. @throws FlagError */
export function parseDirect(flags: Values<typeof directDials>): Listed {
  return listed('direct-destinations', flags['direct-destinations'], DIRECT_PROHIBITIONS);
}

/** A list of entries, and of names that lift prohibitions. */
interface Listed {
  readonly lifted: readonly Prohibition[];
  readonly rules: readonly PolicyRule[];
}

function listed(flag: string, list: readonly string[], names: readonly Prohibition[]): Listed {
  const entries = list.filter((entry) => !names.some((name) => name === entry));
  // A name that is misspelt must not become a host that alone is allowed.
  const misspelt = entries.find((entry) => /^[\w-]+$/.test(entry));
  if (misspelt !== undefined) {
    throw new FlagError(
      flag,
      `unknown name ${JSON.stringify(misspelt)}: want ${names.join(', ')}, or write a host without dots with a port or a dot behind it`,
    );
  }
  return {
    lifted: names.filter((name) => list.includes(name)),
    rules: entries.map((entry) => ruleOf(flag, entry)),
  };
}

function ruleOf(flag: string, entry: string): PolicyRule {
  const bad = (problem: string) => new FlagError(flag, `bad entry ${JSON.stringify(entry)}: ${problem}`);
  const [target, ports] = split(entry);
  const rule = {
    name: entry,
    ...(ports !== undefined && { ports: [rangeOf(ports, bad)] }),
    ...(target !== '*' && { [isNetwork(target) ? 'cidr' : 'host']: target }),
  };
  try {
    policyOf({ deny: [rule] });
  } catch (error) {
    throw bad((error as Error).message);
  }
  return rule;
}

/** IPv6 needs brackets only before ports. */
function split(entry: string): [target: string, ports: string | undefined] {
  const [, bracketed, behind] = /^\[([^\]]*)\](?::(.*))?$/.exec(entry) ?? [];
  if (bracketed !== undefined) return [bracketed, behind];
  const [target = '', ports, ...rest] = entry.split(':');
  return rest.length > 0 ? [entry, undefined] : [target, ports];
}

function isNetwork(target: string): boolean {
  return /[:/]|^[\d.]+$/.test(target);
}

function rangeOf(text: string, bad: (problem: string) => FlagError): PortRange {
  const [, from, to = from] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text) ?? [];
  const [first, last] = [Number(from), Number(to)];
  if (first >= 1 && first <= last && last <= 65_535) return [first, last];
  throw bad(`${JSON.stringify(text)} is no port from 1 to 65535, and no range such as 30000-32767`);
}
