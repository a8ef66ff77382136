import { isIP } from '@isthmus/runtime';
import { type DialPolicy, reachedAddress } from '@isthmus/tunnel';
import { type Address, comparableHost, HostPattern, Prefix, readAddress, spelledAddress } from './patterns.ts';
import type { DialRule } from './tenant-schema.ts';

/** From the first to the last, both included. */
export type PortRange = readonly [first: number, last: number];

/** A rule of a tenant's file, or of an agent's flags, which may have ranges of ports. Without any field it matches every dial. */
export interface PolicyRule extends Omit<DialRule, 'ports' | 'callers'> {
  readonly ports?: readonly (number | PortRange)[];
  readonly callers?: readonly string[];
}

export interface PolicyRules {
  readonly deny?: readonly PolicyRule[];
  readonly allow?: readonly PolicyRule[];
}

interface Rule {
  readonly name: string;
  matches(target: Target, port: number, caller: string): boolean;
  /** Whether it matches one of the addresses that a name may have. */
  mayMatch(port: number, caller: string): boolean;
}

/** A name in comparableHost form, or an address. */
type Target = string | Address;

/**
 * deny wins, and looks at the host that an address reaches, too: the loopback of an unspecified address, the IPv4 address within an
 * IPv6 one. With `allow`, each address must be allowed as it is, unless a rule allows the name.
 * @throws Error for a prefix or pattern that is none
 */
export function policyOf(rules: PolicyRules = {}): DialPolicy {
  const deny = (rules.deny ?? []).map((rule, index) => ruleOf(rule, `deny[${index}]`));
  const allow = rules.allow?.map((rule, index) => ruleOf(rule, `allow[${index}]`));
  return {
    verdict({ host: given, port }, caller, addresses) {
      const [host, resolved] = [targetOf(given), (addresses ?? []).map(targetOf)];
      const targets = [host, ...resolved].flatMap((target) => [target, ...reachedBy(target)]);
      const denied = deny.find((rule) => targets.some((target) => rule.matches(target, port, caller)));
      if (denied) return { allowed: false, rule: denied.name };
      if (!allow) return { allowed: true, rule: '' };
      const allowing = (target: Target) => allow.find((rule) => rule.matches(target, port, caller));
      const byAddress = resolved.map(allowing);
      const unresolved = addresses === undefined && typeof host === 'string';
      const rule =
        allowing(host) ??
        (byAddress.every(Boolean) ? byAddress[0] : undefined) ??
        (unresolved ? allow.find((each) => each.mayMatch(port, caller)) : undefined);
      return { allowed: rule !== undefined, rule: rule?.name ?? '' };
    },
  };
}

function targetOf(host: string): Target {
  if (isIP(host) !== 0) return readAddress(host);
  return spelledAddress(host) ?? comparableHost(host);
}

/** The host that is reached if it has another address than the one given. */
function reachedBy(target: Target): Target[] {
  if (typeof target === 'string') return [];
  const reached = reachedAddress(target.toString());
  return reached === undefined ? [] : [readAddress(reached)];
}

function ruleOf({ name, cidr, host, ports, callers }: PolicyRule, place: string): Rule {
  const prefix = cidr === undefined ? undefined : new Prefix(cidr);
  const pattern = host === undefined ? undefined : new HostPattern(host);
  const concerns = (port: number, caller: string) =>
    (!ports || ports.some((each) => includes(each, port))) && (!callers || callers.includes(caller));
  return {
    name: name ?? place,
    mayMatch: (port, caller) => prefix !== undefined && concerns(port, caller),
    matches(target, port, caller) {
      if (!concerns(port, caller)) return false;
      const named = typeof target === 'string';
      if (prefix) return !named && prefix.has(target);
      return !pattern || (named && pattern.hasCanonical(target));
    },
  };
}

function includes(ports: number | PortRange, port: number): boolean {
  if (typeof ports === 'number') return ports === port;
  const [first, last] = ports;
  return first <= port && port <= last;
}
