import type { adminApi } from '@isthmus/proto/admin';
import { millis } from '../output/units.ts';
import type { Answers } from '../plane/member.ts';
import { refusalText, refusalViews } from '../plane/refusals.ts';
import { type Report, type Result, reportOf } from './result.ts';

/** A member's status, and how far its clock is ahead of this machine's, in milliseconds. */
export interface Seen {
  readonly status: adminApi.GetStatusResponse;
  readonly aheadMs: number;
}

/** Clocks further apart than this make logs hard to compare. Much further apart, certificates and tokens seem invalid. */
const APART_MS = 1000;
const FAR_APART_MS = 30_000;

/** How warnings about tenants' files begin (libs/plane). */
const TENANT_FILE = "tenant's file ";

export function checkMembers({ answers, unanswered }: Answers<Seen>): Result[] {
  const report = reportOf('members');
  const silent = unanswered.map(({ member, address, reason }) => {
    return report.fail(
      member,
      `does not answer${address === '' ? '' : ` at ${address}`}: ${reason}`,
      'check that it runs, and read its log',
    );
  });
  const answered = answers.map(({ member, value: { status } }) => {
    const failing = status.checks.filter(({ ok }) => !ok).map(({ name, detail }) => `${name}: ${detail}`);
    // `checkTenants` reports tenants' files.
    const warning = status.warnings.find((text) => !text.startsWith(TENANT_FILE));
    if (warning !== undefined)
      return report.fail(member.id, warning, 'change --server-id of one of them and restart it');
    if (status.ready) return report.pass(member.id, `${status.program} ${status.version} is ready`);
    return report.fail(
      member.id,
      `is not ready: ${failing.join('; ')}`,
      'fix the cause named here; until then, load balancers skip this program',
    );
  });
  return [...answered, ...silent];
}

/** A peer that is refused again and again cannot do its part, however healthy the others are. */
export function checkRefusals({ answers }: Answers<Seen>): Result[] {
  const report = reportOf('refusals');
  return answers.flatMap(({ member, value: { status } }) =>
    refusalViews(status).map((refusal) => {
      const todo =
        'if the peer is yours, run isthmus status --address with its admin port to see its side; if not, rejecting it is right';
      return report.warn(`${member.id}, port for ${refusal.where}`, `refused ${refusalText(refusal)}`, todo);
    }),
  );
}

export function checkVersions({ answers }: Answers<Seen>): Result[] {
  const report = reportOf('versions');
  const versions = new Map<string, string[]>();
  for (const { member, value } of answers) {
    versions.set(value.status.version, [...(versions.get(value.status.version) ?? []), member.id]);
  }
  if (versions.size === 0) return [];
  const [first = ''] = versions.keys();
  if (versions.size === 1) return [report.pass('members', `all run ${first}`)];
  const list = [...versions].map(([version, ids]) => `${version} at ${ids.join(', ')}`).join('; ');
  return [report.warn('members', list, 'finish the upgrade, or find out why these members were left out')];
}

/** @param redisAheadMs how far the registry's clock is ahead, if it was asked */
export function checkClocks({ answers }: Answers<Seen>, redisAheadMs: number | undefined): Result[] {
  const clocks = answers.map(({ member, value }) => ({ of: member.id, aheadMs: value.aheadMs }));
  if (redisAheadMs !== undefined) clocks.push({ of: 'redis', aheadMs: redisAheadMs });
  if (clocks.length === 0) return [];
  clocks.push({ of: 'this machine', aheadMs: 0 });
  return [judgedClocks(reportOf('clocks'), clocks)];
}

export function judgedClocks(report: Report, clocks: readonly { of: string; aheadMs: number }[]): Result {
  const sorted = [...clocks].sort((a, b) => a.aheadMs - b.aheadMs);
  const [slowest, fastest] = [sorted[0], sorted.at(-1)];
  if (!slowest || !fastest) return report.pass('members', 'there are no clocks to compare');
  const apart = fastest.aheadMs - slowest.aheadMs;
  if (apart < APART_MS) return report.pass('members', `within ${millis(apart)} of each other`);
  const detail = `${fastest.of} is ${millis(apart)} ahead of ${slowest.of}`;
  const todo = 'check that both synchronise their clocks by NTP (timedatectl, chronyc tracking)';
  return apart < FAR_APART_MS ? report.warn('members', detail, todo) : report.fail('members', detail, todo);
}
