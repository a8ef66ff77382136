import { type CheckName, type Finding, findingsIn, judge } from '@isthmus/findings';
import { adminApi, namesOf } from '@isthmus/proto/admin';
import { type Kind, type ListColumn, listCommand } from '../lists.ts';
import { age, EXIT, type ExitStatus, isoTime, plural, type Style, statusOf } from '../output.ts';
import { type Asked, askPlane, warningsOf } from '../plane/evidence.ts';
import { type Answer, byName, isMember, roleNames, type Unanswered } from '../plane/member.ts';
import { table } from '../table.ts';

/** Whom a member refused at its ports, and why. */
function refusalViews({ refusals, nowMs }: adminApi.GetStatusResponse) {
  return refusals.map(({ where, remote, reason, count, lastMs }) => {
    // Since the last one, by the member's clock.
    const agoMs = Math.max(0, nowMs - lastMs);
    return { where, remote, reason, count, last: isoTime(lastMs), agoMs };
  });
}

type StatusView = ReturnType<typeof statusView>;

type MemberView = ReturnType<typeof memberView> & {
  /** Of one that is not ready: what it warned of last. */
  readonly warnings?: readonly string[];
};

type More = Pick<StatusView, 'plane' | 'attention' | 'holds'>;

export const MEMBERS: Kind<MemberView, More> = {
  name: 'members',
  one: 'member',
  names: ({ member, address }) => [member, address],
  columns: () => COLUMNS,
  async ask(call) {
    const met = await call.plane();
    const asked = await askPlane(met, call.options.tenant, false);
    const { answers } = asked.statuses;
    const unready = answers.filter(({ value }) => !value.ready);
    const view = statusView(asked, await warningsOf(met, unready));
    const { members: items, unanswered, ...more } = view;
    return {
      items,
      unanswered,
      more: () => more,
      text: (members, style, of) => statusText({ ...of.more, members, unanswered: of.unanswered }, style),
      status: exitOf(view),
    };
  },
};

export const status = listCommand(MEMBERS, {
  name: 'status',
  summary: 'List the members of a plane, whether each is ready (or why not), what it carries, and what needs attention',
  details:
    'Exits with 1 if a member is not ready, and with 4 if all are and something needs attention: somebody was refused in the last five minutes, a gateway, hub or agent went away, callers fail to reach something again and again, dials wait for a session, a gateway lacks a hub or the registry, a certificate expires soon, a tenant is near a limit, or there is something to fix. Each line says what to do.',
  examples: {
    status: 'the plane of the gateway or hub on this machine',
    'status -a 10.0.0.5:8095,10.0.0.6:8095': 'ask the second one if the first is down',
    'status -o wide': 'all columns, however narrow the terminal',
    'status -w': 'and who comes, changes and goes, during a roll',
    'status -o json': 'the same, for programs',
  },
});

/** What the rules find that members do not say of themselves. What `check` alone reports may stay as it is for long. */
const ATTENTION: readonly CheckName[] = ['missing', 'refusals', 'tenants', 'limits', 'links', 'callers'];

/** @param warnings by member */
export function statusView(
  { statuses: { answers, unanswered }, evidence }: Pick<Asked, 'statuses' | 'evidence'>,
  warnings: ReadonlyMap<string, readonly string[]> = new Map(),
) {
  const members: readonly MemberView[] = answers.map((answer) => {
    const warned = warnings.get(answer.member.id);
    return { ...memberView(answer), ...(warned && { warnings: warned }) };
  });
  const plane = answers.find(({ value }) => value.plane !== '')?.value.plane ?? '';
  // What works now, and should be looked at before it fails.
  return { plane, members, attention: findingsIn(judge(evidence, ATTENTION)), holds: holdsOf(evidence), unanswered };
}

/** Each process of `isthmus hold` once, with the gateways to which it has links. */
function holdsOf({ members }: Pick<Asked['evidence'], 'members'>) {
  const found = new Map<string, Omit<adminApi.Hold, 'remote' | 'sinceMs'> & { readonly gateways: string[] }>();
  for (const { id, list } of members)
    for (const { remote, sinceMs: _since, ...hold } of list?.holds ?? []) {
      const key = `${hold.tenant} ${hold.name || remote}`;
      found.set(key, { ...hold, name: hold.name || remote, gateways: [...(found.get(key)?.gateways ?? []), id] });
    }
  return [...found.values()].sort((a, b) => byName(a.name, b.name));
}

export function exitOf({ members, attention, unanswered }: StatusView): ExitStatus {
  const status = statusOf(
    members.some(({ ready }) => !ready),
    unanswered,
  );
  if (status !== EXIT.good) return status;
  const noted = members.some(({ notices }) => notices.length > 0);
  return noted || attention.length > 0 ? EXIT.attention : EXIT.good;
}

const ADMISSIONS = namesOf(adminApi.Admission, 'ADMISSION');

export function memberView({ member, value }: Answer<adminApi.GetStatusResponse>) {
  const { checks, sessions, tunnels, pendingDials, parkedDials, startedMs, nowMs } = value;
  const [rate] = value.dialRates;
  const alone = roleNames(value.roles).join() === 'gateway';
  return {
    member: member.id,
    address: member.address,
    program: value.program,
    roles: roleNames(value.roles),
    version: value.version,
    runtime: value.runtime,
    zone: value.zone,
    started: isoTime(startedMs),
    uptimeMs: Math.max(0, nowMs - startedMs),
    ready: value.ready,
    /** Whether it takes new dials and sessions. */
    admission: ADMISSIONS[value.admission] ?? 'open',
    checks: checks.map(({ name, ok, detail }) => ({ name, ok, detail })),
    /** At a gateway without a hub, the plane's sessions that it knows: it holds none. */
    ...(alone && { knownSessions: sessions }),
    /** Agents' sessions that a hub holds, or an agent's connections to servers. */
    ...(!alone && { sessions }),
    tunnels,
    pendingDials,
    parkedDials,
    // Over the last 10 s, for the member's first role: the dials of a plane are those of its gateways.
    dialsPerSecond: rate?.dialsPerSecond ?? 0,
    failuresPerSecond: rate?.failuresPerSecond ?? 0,
    /** What to fix although it is ready. */
    notices: value.notices.map(({ text, todo }) => (todo === '' ? text : `${text}: ${todo}`)),
    refusals: refusalViews(value),
  };
}

/** One that drains does what it was told to. */
function readyText({ ready, admission }: MemberView, style: Style): string {
  if (ready) return style.good('yes');
  return admission === 'open' ? style.bad('NO') : style.warning(admission);
}

const COLUMNS: readonly ListColumn<MemberView>[] = [
  { name: 'member', least: 12, of: ({ member }) => member },
  { name: 'roles', drop: 5, of: ({ roles }) => roles.join('+') },
  { name: 'ready', of: readyText },
  { name: 'version', drop: 2, of: ({ version }) => version },
  { name: 'zone', drop: 1, of: ({ zone }) => zone },
  { name: 'up', drop: 6, of: ({ uptimeMs }) => age(uptimeMs), moves: true },
  { name: 'sessions', right: true, of: ({ sessions }) => String(sessions ?? '') },
  { name: 'tunnels', right: true, of: ({ tunnels }) => String(tunnels), moves: true },
  { name: 'parked', right: true, of: parkedText },
  { name: 'dials/s', right: true, of: ({ dialsPerSecond }) => dialsPerSecond.toFixed(1), moves: true },
  { name: 'failed/s', right: true, of: failedText, moves: true },
  { name: 'address', drop: 3, of: ({ address }) => address },
  { name: 'known', right: true, wide: true, of: ({ knownSessions }) => String(knownSessions ?? '') },
  { name: 'pending', right: true, wide: true, of: ({ pendingDials }) => String(pendingDials), moves: true },
  { name: 'program', wide: true, of: ({ program }) => program },
  { name: 'runtime', wide: true, of: ({ runtime }) => runtime },
];

function parkedText({ parkedDials }: MemberView, style: Style): string {
  return parkedDials > 0 ? style.warning(String(parkedDials)) : '0';
}

function failedText({ failuresPerSecond }: MemberView, style: Style): string {
  return failuresPerSecond > 0 ? style.bad(failuresPerSecond.toFixed(1)) : '0.0';
}

/** Under the columns of those that answered. */
function silentRow({ member, address }: Unanswered, style: Style): string[] {
  const cells: Readonly<Record<string, string>> = { member, ready: style.bad('no answer'), address };
  return COLUMNS.map(({ name }) => cells[name] ?? '');
}

/** Of what shares no registry with others. */
function aloneText(members: readonly MemberView[]): string {
  if (members.every(({ roles }) => roles.includes('agent'))) return 'An agent';
  return members.length > 1 ? `${members.length} servers, each a plane of its own` : 'A plane of one server';
}

export function statusText({ plane, members, attention, holds, unanswered }: StatusView, style: Style): string {
  const rows = members.map((member) => COLUMNS.map((column) => column.of(member, style)));
  const silent = unanswered.filter(isMember).map((each) => silentRow(each, style));
  const count = plural(rows.length + silent.length, 'member');
  const title = plane === '' ? aloneText(members) : `Plane ${plane}: ${count}`;
  const unready = members.flatMap(({ member, checks, warnings = [] }) => [
    ...checks.filter(({ ok }) => !ok).map(({ name, detail }) => `  ${member}: ${name}: ${detail}\n`),
    ...warnings.map((warning) => `  ${member} warned: ${warning}\n`),
  ]);
  const why = unready.length > 0 ? `\nNot ready:\n${unready.join('')}` : '';
  const noticed = members.flatMap(({ member, notices }) => notices.map((notice) => `  ${member}: ${notice}\n`));
  const todo = noticed.length > 0 ? `\nTo fix:\n${noticed.join('')}` : '';
  const held = holds.map(({ name, tenant, tunnels, gateways, version }) => {
    const links = `${plural(tunnels, 'tunnel')} of tenant ${tenant}, by ${gateways.join(', ')}`;
    return `  ${name}: ${links}${version === '' ? '' : `, version ${version}`}\n`;
  });
  const ends = held.length > 0 ? `\nCallers' ends (isthmus hold):\n${held.join('')}` : '';
  const lines = (findings: readonly Finding[]) =>
    findings.map(({ about, detail, todo }) => `  ${about}: ${detail}\n    -> ${todo}\n`).join('');
  const near = attention.filter(({ check }) => check !== 'refusals');
  const refused = attention.filter(({ check }) => check === 'refusals');
  const soon = near.length > 0 ? `\nNeeds attention:\n${lines(near)}` : '';
  const kept = refused.length > 0 ? `\nRejected recently:\n${lines(refused)}` : '';
  return `${style.strong(title)}\n\n${table(COLUMNS, [...rows, ...silent], style)}${ends}${why}${todo}${soon}${kept}`;
}
