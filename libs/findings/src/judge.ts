import { ofAgents } from './agents.ts';
import { ofConfig } from './config.ts';
import { ofCallers } from './dials.ts';
import type { Evidence } from './evidence.ts';
import { ofLinks } from './links.ts';
import { ofCertificates, ofClocks, ofMembers, ofParked, ofVersions } from './members.ts';
import { ofMissing } from './missing.ts';
import { ofRefusals } from './refusals.ts';
import { CHECKS, type CheckName, type Result } from './result.ts';
import { ofLimits, ofTenants } from './tenants.ts';

/** What members' own answers say. */
const RULES: readonly ((evidence: Evidence) => Result[])[] = [
  ofMembers,
  ofCertificates,
  ofMissing,
  ofRefusals,
  ofClocks,
  ofVersions,
  ofConfig,
  ofTenants,
  ofLimits,
  ofLinks,
  ofAgents,
  ofCallers,
  ofParked,
];

/**
 * Judges a plane by what its members say: the one list of rules, which `isthmus status` and `check` and the console share.
 * @param only these checks; default all
 */
export function judge(evidence: Evidence, only: readonly CheckName[] = Object.keys(CHECKS) as CheckName[]): Result[] {
  return RULES.flatMap((rule) => rule(evidence)).filter(({ check }) => only.includes(check));
}
