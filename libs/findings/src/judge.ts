import { ofClocks } from './clocks.ts';
import { ofCallers, ofParked } from './dials.ts';
import type { Evidence } from './evidence.ts';
import { ofCertificates, ofConfig, ofLimits, ofMembers, ofTenants, ofVersions } from './members.ts';
import { ofAgents, ofLinks, ofMissing, ofRefusals } from './reach.ts';
import { CHECKS, type CheckName, type Report, type Result, reportOf } from './result.ts';

type Rule = (evidence: Evidence, report: Report) => readonly Result[];

/** What each check makes of members' answers. The other checks look at files, ports and Redis, or dial: who asks makes those. */
const RULES: { readonly [Check in CheckName]?: readonly Rule[] } = {
  members: [ofMembers],
  certificates: [ofCertificates],
  missing: [ofMissing],
  refusals: [ofRefusals],
  clocks: [ofClocks],
  versions: [ofVersions],
  config: [ofConfig],
  tenants: [ofTenants],
  limits: [ofLimits],
  links: [ofLinks],
  agents: [ofAgents],
  callers: [ofCallers, ofParked],
};

/**
 * Judges a plane by what its members say: the one table of rules, which `isthmus status` and `check` and the console share.
 * @param only these checks; default all
 */
export function judge(evidence: Evidence, only: readonly CheckName[] = Object.keys(CHECKS) as CheckName[]): Result[] {
  const checks = (Object.keys(RULES) as CheckName[]).filter((check) => only.includes(check));
  return checks.flatMap((check) => (RULES[check] ?? []).flatMap((rule) => rule(evidence, reportOf(check))));
}
