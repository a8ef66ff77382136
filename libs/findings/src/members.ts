import { Admission, Notice_Kind as Kind } from '@isthmus/proto/admin-enums';
import { LIMIT_ENTRIES } from '@isthmus/tunnel/limits';
import { farOff } from './clocks.ts';
import { FINDINGS } from './defaults.ts';
import type { Evidence, Tenants } from './evidence.ts';
import { clockTodo, reachedBy, registryLost } from './reach.ts';
import { agentName, endsSoon, endText, type Finding, plural, type Report, type Result } from './result.ts';

/** By the names that a member tells, which may be of another version. */
const HOLDERS = new Map<string, readonly [command: string, shows: string] | undefined>(
  LIMIT_ENTRIES.map(([name, { holders }]) => [name, holders]),
);

const {
  KIND_TENANT_FILE,
  KIND_NODES,
  KIND_CERTIFICATE_EXPIRED,
  KIND_CERTIFICATE_EXPIRES,
  KIND_CERTIFICATE_FAULT,
  KIND_SERVERS,
} = Kind;

/** What to do about notices that warn of a member that works. */
const TODO = new Map<Kind, string>([
  [KIND_SERVERS, 'make that address lead to its server from here, or take it out of the plane'],
  [KIND_NODES, 'fix what it names: until then, /sd lists the nodes that were read last'],
]);

/** Notices that `ofTenants` and `ofCertificates` report. */
const OF_CERTIFICATES: ReadonlySet<Kind> = new Set([
  KIND_CERTIFICATE_EXPIRES,
  KIND_CERTIFICATE_EXPIRED,
  KIND_CERTIFICATE_FAULT,
]);
const ELSEWHERE: ReadonlySet<Kind> = new Set([KIND_TENANT_FILE, ...OF_CERTIFICATES]);

/** Told to stop, or to drain: nothing of it is a fault. */
const DRAINS: ReadonlySet<Admission> = new Set([Admission.ADMISSION_LEAVING, Admission.ADMISSION_DRAINING]);

export function ofMembers(evidence: Evidence, report: Report): Result[] {
  return evidence.members.flatMap(({ id, address, roles, status, silent, list }): Result[] => {
    if (!status) {
      // The registry, which lists the members. It may have answered, with a refusal.
      if (address === '' && roles.length === 0) return [report.fail(id, `${silent}`, registryLost(`${silent}`))];
      const at = address === '' ? '' : ` at ${address}`;
      const linked = reachedBy(id, evidence.members);
      if (linked.length > 0) {
        const reach = linked.length === 1 ? 'reaches' : 'reach';
        const detail = `does not answer here${at}: ${silent}; ${linked.join(', ')} ${reach} it`;
        const todo =
          'it serves: its machine is busy (--timeout waits longer), or its admin port is not reached from here';
        return [report.warn(id, detail, todo)];
      }
      const todo = 'check that it runs, and read its log. One that runs and does not answer hangs: restart it';
      return [report.fail(id, `does not answer${at}: ${silent}`, clockTodo(evidence, [id]) ?? todo)];
    }
    const old =
      list && list.membersError !== '' && list.registry?.up !== false
        ? [report.warn(id, `its list of members may be old: ${list.membersError}`, 'check Redis')]
        : [];
    const noticed = status.notices
      .filter(({ kind }) => !ELSEWHERE.has(kind))
      .map(({ kind, text, todo }) => report.warn(id, text, TODO.get(kind) ?? (todo || 'read its log')));
    const more = [...noticed, ...old];
    const { sessions, tunnels, admission } = status;
    if (!status.ready && DRAINS.has(admission)) {
      const left = [plural(sessions, 'session'), plural(tunnels, 'tunnel')].join(' and ');
      return [report.pass(id, `drains, as it was told: ${left} are left`), ...more];
    }
    if (status.ready) return [report.pass(id, `${status.program} ${status.version} is ready`), ...more];
    const failing = status.checks.filter(({ ok }) => !ok);
    const why = failing.map(({ name, detail }) => (detail === '' ? name : `${name}: ${detail}`)).join('; ');
    const todo = 'fix the cause named here; until then, load balancers skip this program';
    return [report.fail(id, `is not ready: ${why}`, todo), ...more];
  });
}

/** The certificates that members use. Those of their ports are looked at from outside, too; the others are seen only here. */
export function ofCertificates(evidence: Evidence, report: Report): Result[] {
  const own = evidence.members.flatMap(({ id, status }) =>
    (status?.notices ?? []).flatMap(({ kind, text, todo }) => {
      if (!OF_CERTIFICATES.has(kind)) return [];
      const outcome = kind === KIND_CERTIFICATE_EXPIRES ? report.warn : report.fail;
      // The check's name says what it is.
      const detail = text.replace(/^certificate /, '');
      const off = kind === KIND_CERTIFICATE_FAULT ? undefined : farOff(evidence, id);
      if (off !== undefined)
        return outcome(`${id}, its own`, `${detail}, by a clock that is ${off} most others`, SET_CLOCK);
      const what = kind === KIND_CERTIFICATE_FAULT ? todo : `${todo}: programs use the new ones within 10 s`;
      return outcome(`${id}, its own`, detail, what);
    }),
  );
  return [...own, ...ofAgentsCertificates(evidence, report)];
}

const SET_CLOCK = 'set the clock of this machine first (clocks), and renew what is expired then';

/** The certificates of agents, as their hubs see them. */
function ofAgentsCertificates({ sessions, now }: Evidence, report: Report): Finding[] {
  const ending = sessions.filter(({ certificateEndsMs }) => certificateEndsMs > 0);
  const agents = Map.groupBy(ending, ({ tenant, agentId }) => agentName(tenant, agentId));
  return [...agents].map(([name, own]) => {
    const ends = Math.min(...own.map(({ certificateEndsMs }) => certificateEndsMs));
    const todo =
      'renew its files in place, if nobody has: new sessions show the new one, and those with the old one end when it does';
    return report.warn(`agent ${name}`, `the certificate of its sessions ${endText(ends, now)}`, todo);
  });
}

export function ofVersions({ members }: Evidence, report: Report): Result[] {
  const known = members.filter(({ version }) => version !== '');
  const versions = [...Map.groupBy(known, ({ version }) => version)];
  const [first, second] = versions;
  if (!first) return [];
  if (!second) return [report.pass('members', `all run ${first[0]}`)];
  const list = versions.map(([version, all]) => `${version} at ${all.map(({ id }) => id).join(', ')}`).join('; ');
  return [report.warn('members', list, 'finish the upgrade, or find out why these members were left out')];
}

/** A flag whose value differs between replicas of one program. */
export interface Difference {
  readonly program: string;
  readonly flag: string;
  readonly values: readonly { readonly member: string; readonly value: string }[];
}

interface Replica {
  readonly member: string;
  readonly program: string;
  readonly flags: readonly { readonly name: string; readonly value: string }[];
}

/** Flags that differ between replicas by nature: identity, addresses, certificates, verbosity. */
const OWN =
  /^(server-id|agent-id|zone|uds-name|v|kubeconfig|proxy-server-(host|port)|log-.*|.*-(port|address|host|cert|key)|advertise-.*)$/;

export function differencesOf(members: readonly Replica[]): Difference[] {
  const programs = new Set(members.map(({ program }) => program));
  return [...programs].flatMap((program) => {
    const replicas = members.filter((member) => member.program === program);
    const names = new Set(replicas.flatMap(({ flags }) => flags.map(({ name }) => name)));
    return [...names]
      .filter((name) => !OWN.test(name))
      .map((flag) => ({
        program,
        flag,
        values: replicas.map(({ member, flags }) => ({ member, value: valueIn(flags, flag) })),
      }))
      .filter(({ values }) => new Set(values.map(({ value }) => value)).size > 1);
  });
}

/** Returns '' for an older replica that does not know the flag. */
function valueIn(flags: Replica['flags'], name: string): string {
  return flags.find((flag) => flag.name === name)?.value ?? '';
}

export function ofConfig({ members }: Evidence, report: Report): Result[] {
  const replicas = members.flatMap(({ id: member, config }) => (config ? [{ member, ...config }] : []));
  const differences = differencesOf(replicas);
  if (differences.length === 0)
    return replicas.length > 1 ? [report.pass('members', 'replicas have the same flags')] : [];
  return differences.map(({ program, flag, values }) => {
    const list = values.map(({ member, value }) => `${value || '(empty)'} at ${member}`).join(', ');
    return report.warn(program, `--${flag} is ${list}`, 'set it alike on all replicas, unless they should differ');
  });
}

/** The files of tenants, and the certificates that they name. Says nothing of a plane without tenants. */
export function ofTenants(evidence: Evidence, report: Report): Result[] {
  const configured = tenantsOf(evidence);
  if (configured.length === 0) return [];
  const files = new Map<string, Finding & { readonly ids: string[] }>();
  for (const { id, tenants } of configured) {
    const inForce = new Set(tenants.tenants.map(({ file }) => file));
    for (const problem of tenants.problems) {
      const found = report.fail(...problemFound(problem, inForce.has(problem.file)));
      const key = JSON.stringify([found.about, found.detail]);
      files.set(key, { ...found, ids: [...(files.get(key)?.ids ?? []), id] });
    }
  }
  const closed = configured.flatMap(({ id, tenants }) =>
    tenants.unopened.map((why) => {
      const todo = 'free the port or path, or name another in the file: it is tried again every few seconds';
      return report.fail(`a port at ${id}`, why, todo);
    }),
  );
  const certificates = new Map<string, Finding>();
  for (const { name: tenant, certificates: own, source } of configured.flatMap(({ tenants }) => tenants.tenants)) {
    for (const { where, name, expiresMs, beginsMs } of own) {
      const soon = endsSoon(expiresMs, evidence.now);
      const about = `${tenant}: ${where}`;
      const key = `${about}\0${name}`;
      if (beginsMs > evidence.now) {
        const begins = `is not valid before ${new Date(beginsMs).toISOString()}: until then, who shows one of it is refused`;
        const todo =
          'set the clock of the machine that made it, and make it again; or see whether those here are late (clocks)';
        certificates.set(key, report.fail(about, `${name} ${begins}`, todo));
      } else if (soon) {
        const outcome = soon.over ? report.fail : report.warn;
        const what = source === '' ? 'the file' : `what ${source} names`;
        const todo = `renew ${what} in place: servers use the new one within ${source === '' ? 5 : 10} s`;
        certificates.set(key, outcome(about, `${name} ${soon.text}`, todo));
      }
    }
  }
  const names = new Set(configured.flatMap(({ tenants }) => tenants.tenants.map(({ name }) => name)));
  const lacking = configured.flatMap(({ id, tenants }): Result[] => {
    const own = new Set(tenants.tenants.map(({ name }) => name));
    const absent = [...names].filter((name) => !own.has(name));
    if (absent.length === 0) return [];
    return [report.warn(id, `does not have tenants that others have: ${listed(absent)}`, OTHER_FILES)];
  });
  return [
    ...lacking,
    ...differing(configured, report),
    ...[...files.values()].map(({ ids, ...found }) => ({ ...found, detail: `${found.detail}${ids.join(', ')}` })),
    ...closed,
    ...certificates.values(),
    report.pass('the plane', `${names.size} in force`),
  ];
}

/** Returns what a file, an object or the sync itself is called, what is wrong with it, and what to do. */
function problemFound(
  { file, line, column, message, kept }: Tenants['problems'][number],
  inForce: boolean,
): [string, string, string] {
  const still = kept !== '' ? `tenant ${kept} stays as it was` : inForce ? 'its tenant is in force' : undefined;
  if (line > 0) {
    const todo = 'fix the file: isthmus tenants check says when it can be used';
    return [`${file}:${line}:${column}`, `${message}; ${still ?? 'its tenant is not in force'}, at `, todo];
  }
  // An object has a kind, a namespace and a name.
  if (!file.includes('/')) return [file, `${message}, at `, 'see that it runs beside this member, and its log'];
  const todo =
    'fix the object, or what it names: isthmus tenants sync follows by itself, and its log says what it waits for';
  return [file, `${message}; ${still ?? 'no tenant of it is in force'}, at `, todo];
}

const OTHER_FILES =
  'ask again: members read their directories one after the other. If it stays, see what writes the directory of this one';

/** Tenants of which members have read different files: those that most have are taken for the right ones. */
function differing(configured: ReturnType<typeof tenantsOf>, report: Report): Finding[] {
  const saying = configured.flatMap(({ id, tenants }) =>
    tenants.tenants.map(({ name, state }) => ({ id, name, state })),
  );
  const odd = [...Map.groupBy(saying, ({ name }) => name)].flatMap(([tenant, all]) => {
    const states = [...Map.groupBy(all, ({ state }) => state).values()].sort((a, b) => b.length - a.length);
    return states.slice(1).flatMap((few) => few.map(({ id }) => ({ id, tenant, others: states[0] ?? [] })));
  });
  return [...Map.groupBy(odd, ({ id }) => id)].map(([id, all]) => {
    const others = [...new Set(all.flatMap((each) => each.others.map((other) => other.id)))].join(', ');
    const detail = `has other files than ${others} of tenants ${listed(all.map(({ tenant }) => tenant))}`;
    return report.warn(id, detail, OTHER_FILES);
  });
}

function listed(names: readonly string[]): string {
  const more = names.length > FINDINGS.shownTenants ? ` and ${names.length - FINDINGS.shownTenants} more` : '';
  return `${names.slice(0, FINDINGS.shownTenants).join(', ')}${more}`;
}

/** Limits hold in each process by itself. */
export function ofLimits(evidence: Evidence, report: Report): Result[] {
  return tenantsOf(evidence).flatMap(({ id, tenants }) =>
    tenants.tenants.flatMap(({ name, use }) =>
      use.flatMap(({ limit, used, most }): Result[] => {
        if (most === undefined || used < FINDINGS.nearlyUsedUp * most) return [];
        const full = used >= most;
        const refused = full ? ': what exceeds it is refused' : '';
        const [command, shows] = HOLDERS.get(limit) ?? [];
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
