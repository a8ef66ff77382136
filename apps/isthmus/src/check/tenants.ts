import type { adminApi } from '@isthmus/proto/admin';
import type { Answers } from '../plane/member.ts';
import { problemViews, tenantViews } from '../tenants/views.ts';
import { type Result, reportOf } from './result.ts';

const DAY_MS = 86_400_000;

/** With fewer days left, a renewal is overdue. */
const FEW_DAYS = 14;

/** The files of tenants, and the certificates that they name. Says nothing of a plane without tenants. */
export function checkTenants({ answers }: Answers<adminApi.ListTenantsResponse>, now = Date.now()): Result[] {
  const report = reportOf('tenants');
  const configured = answers.filter(({ value }) => value.configured);
  if (configured.length === 0) return [];
  const tenants = tenantViews(configured);
  const files = problemViews(configured).map(({ file, line, column, message, kept, members }) => {
    const still = kept === undefined ? 'its tenant is not in force' : `tenant ${kept} stays as it was`;
    const detail = `${message}; ${still}, at ${members.join(', ')}`;
    return report.fail(
      `${file}:${line}:${column}`,
      detail,
      'fix the file: isthmus tenants check says when it can be used',
    );
  });
  const certificates = tenants.flatMap(({ tenant, certificates: all }) =>
    all.flatMap(({ where, name, expires }) => {
      const days = Math.floor((Date.parse(expires) - now) / DAY_MS);
      if (days >= FEW_DAYS) return [];
      const about = `${tenant}: ${where}`;
      const todo = 'renew the file in place: servers use the new one within 5 s';
      if (days < 0) return [report.fail(about, `${name} expired on ${expires.slice(0, 10)}`, todo)];
      return [report.warn(about, `${name} expires on ${expires.slice(0, 10)}, in ${days} days`, todo)];
    }),
  );
  const inForce = report.pass('the plane', `${tenants.length} in force`);
  return [...files, ...certificates, inForce];
}
