import type { Evidence } from './evidence.ts';
import { type Report, type Result, reportOf } from './result.ts';
import { millis, plural } from './words.ts';

/** Clocks further apart than this make logs hard to compare. Much further apart, certificates and tokens seem invalid. */
const APART_MS = 1000;
const FAR_APART_MS = 30_000;

/** How warnings about tenants' files begin (libs/plane). */
const TENANT_FILE = "tenant's file ";

/** How warnings about a member's own certificates begin (libs/admin). */
const CERTIFICATE = 'certificate ';

export function ofMembers(evidence: Evidence): Result[] {
  const report = reportOf('members');
  return evidence.members.flatMap(({ id, address, status, silent, unseen, list }): Result[] => {
    if (!status) {
      if (unseen) {
        const todo = `open its console there, or run isthmus status --address ${address} where it can be reached`;
        return [report.warn(id, `is not asked from here: ${silent}`, todo)];
      }
      const at = address === '' ? '' : ` at ${address}`;
      const todo = 'check that it runs, and read its log. One that runs and does not answer hangs: restart it';
      return [report.fail(id, `does not answer${at}: ${silent}`, todo)];
    }
    const old =
      list && list.membersError !== '' && list.registry?.up !== false
        ? [report.warn(id, `its list of members may be old: ${list.membersError}`, 'check Redis')]
        : [];
    // `ofTenants` reports tenants' files.
    const warning = status.warnings.find((text) => !text.startsWith(TENANT_FILE) && !text.startsWith(CERTIFICATE));
    if (warning !== undefined)
      return [report.fail(id, warning, 'change --server-id of one of them and restart it'), ...old];
    if (status.ready) return [report.pass(id, `${status.program} ${status.version} is ready`), ...old];
    const failing = status.checks.filter(({ ok }) => !ok);
    const why = failing.map(({ name, detail }) => (detail === '' ? name : `${name}: ${detail}`)).join('; ');
    const todo = 'fix the cause named here; until then, load balancers skip this program';
    return [report.fail(id, `is not ready: ${why}`, todo), ...old];
  });
}

/** The certificates that members use. Those of their ports are looked at from outside, too; the others are seen only here. */
export function ofCertificates({ members }: Evidence): Result[] {
  const report = reportOf('certificates');
  return members.flatMap(({ id, status }) =>
    (status?.warnings ?? [])
      .filter((text) => text.startsWith(CERTIFICATE))
      .map((text) => {
        const [detail = text, todo = 'renew its files in place'] = text.slice(CERTIFICATE.length).split(/: (?=renew )/);
        const outcome = / expired on /.test(detail) ? report.fail : report.warn;
        return outcome(`${id}, its own`, detail, `${todo}: programs use the new ones within 10 s`);
      }),
  );
}

export function ofVersions({ members }: Evidence): Result[] {
  const report = reportOf('versions');
  const versions = new Map<string, string[]>();
  for (const { id, version } of members) {
    if (version !== '') versions.set(version, [...(versions.get(version) ?? []), id]);
  }
  if (versions.size === 0) return [];
  if (versions.size === 1) return [report.pass('members', `all run ${[...versions.keys()][0]}`)];
  const list = [...versions].map(([version, ids]) => `${version} at ${ids.join(', ')}`).join('; ');
  return [report.warn('members', list, 'finish the upgrade, or find out why these members were left out')];
}

export function ofClocks({ members, clocks }: Evidence): Result[] {
  const own = members.flatMap(({ id: of, aheadMs }) => (aheadMs === undefined ? [] : [{ of, aheadMs }]));
  return own.length === 0 ? [] : [judgedClocks(reportOf('clocks'), [...own, ...clocks])];
}

function judgedClocks(report: Report, clocks: readonly { of: string; aheadMs: number }[]): Result {
  const sorted = [...clocks].sort((a, b) => a.aheadMs - b.aheadMs);
  const [slowest, fastest] = [sorted[0], sorted.at(-1)];
  if (!slowest || !fastest) return report.pass('members', 'there are no clocks to compare');
  const apart = fastest.aheadMs - slowest.aheadMs;
  if (apart < APART_MS) return report.pass('members', `within ${millis(apart)} of each other`);
  const detail = `${fastest.of} is ${millis(apart)} ahead of ${slowest.of}`;
  const todo = 'check that both synchronise their clocks by NTP (timedatectl, chronyc tracking)';
  return apart < FAR_APART_MS ? report.warn('members', detail, todo) : report.fail('members', detail, todo);
}

/** Dials that wait for a session. Some that wait for a moment are normal while agents move. */
export function ofParked({ members }: Evidence): Result[] {
  return members.flatMap(({ id, status }) => {
    if (!status || status.parkedDials === 0) return [];
    const wait = status.parkedDials === 1 ? 'waits' : 'wait';
    const detail = `${plural(status.parkedDials, 'dial')} ${wait} for a session`;
    return [reportOf('callers').warn(id, detail, 'isthmus agents shows who has none, isthmus explain HOST:PORT why')];
  });
}
