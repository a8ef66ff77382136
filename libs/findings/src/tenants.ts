import type { Evidence } from './evidence.ts';
import type { Tenants } from './messages.ts';
import { type Finding, type Result, reportOf } from './result.ts';
import { endsSoon } from './words.ts';

/** From this part of a limit on, the rest is soon used up. The alert about it has the same limit. */
export const NEARLY_USED_UP = 0.8;

/** The limits on what dials hold, and where to see who holds it: a command without its tenant, and what it shows. */
const HOLDERS: Readonly<Record<string, readonly [command: string, shows: string]>> = {
  tunnels: [
    'isthmus tunnels --sort age',
    'and the console list who holds them: end those that leak (isthmus kick tunnel)',
  ],
  pendingDials: ['isthmus watch', 'shows the slowest dials: they say what stalls'],
  dialsPerSecond: ['isthmus watch', 'shows who dials in a loop'],
  bytesQueued: ['isthmus tunnels', 'shows whose reader stalls'],
  bytesPerSecond: ['isthmus tunnels', 'shows who transfers most'],
};

/** The files of tenants, and the certificates that they name. Says nothing of a plane without tenants. */
export function ofTenants(evidence: Evidence): Result[] {
  const report = reportOf('tenants');
  const configured = tenantsOf(evidence);
  if (configured.length === 0) return [];
  const files = new Map<string, Finding & { readonly ids: string[] }>();
  for (const { id, tenants } of configured) {
    for (const { file, line, column, message, kept } of tenants.problems) {
      const still = kept === '' ? 'its tenant is not in force' : `tenant ${kept} stays as it was`;
      const found = report.fail(
        `${file}:${line}:${column}`,
        `${message}; ${still}, at `,
        'fix the file: isthmus tenants check says when it can be used',
      );
      const key = JSON.stringify([found.about, found.detail]);
      files.set(key, { ...found, ids: [...(files.get(key)?.ids ?? []), id] });
    }
  }
  const certificates = new Map<string, Finding>();
  for (const { name: tenant, certificates: own } of configured.flatMap(({ tenants }) => tenants.tenants)) {
    for (const { where, name, expiresMs } of own) {
      const soon = endsSoon(expiresMs, evidence.now);
      const outcome = soon?.over ? report.fail : report.warn;
      const todo = 'renew the file in place: servers use the new one within 5 s';
      const about = `${tenant}: ${where}`;
      if (soon) certificates.set(`${about}\0${name}`, outcome(about, `${name} ${soon.text}`, todo));
    }
  }
  const names = new Set(configured.flatMap(({ tenants }) => tenants.tenants.map(({ name }) => name)));
  return [
    ...[...files.values()].map(({ ids, ...found }) => ({ ...found, detail: `${found.detail}${ids.join(', ')}` })),
    ...certificates.values(),
    report.pass('the plane', `${names.size} in force`),
  ];
}

/** Limits hold in each process by itself. */
export function ofLimits(evidence: Evidence): Result[] {
  const report = reportOf('limits');
  return tenantsOf(evidence).flatMap(({ id, tenants }) =>
    tenants.tenants.flatMap(({ name, use }) =>
      use.flatMap(({ limit, used, most }): Result[] => {
        if (most === undefined || used < NEARLY_USED_UP * most) return [];
        const full = used >= most;
        const refused = full ? ': what exceeds it is refused' : '';
        const [command, shows] = HOLDERS[limit] ?? [];
        const holders = command ? `${command} --tenant ${name} ${shows}` : 'find out what uses them';
        const todo = `${holders}; or raise limits.${limit} in the tenant's file`;
        const detail = `uses ${Math.round(used)} of ${most} ${limit} at ${id}${refused}`;
        return [(full ? report.fail : report.warn)(`tenant ${name}`, detail, todo)];
      }),
    ),
  );
}

function tenantsOf({ members }: Evidence): { readonly id: string; readonly tenants: Tenants }[] {
  return members.flatMap(({ id, tenants }) => (tenants?.configured ? [{ id, tenants }] : []));
}
