import type { adminApi } from '@isthmus/proto/admin';
import { type Call, command } from '../command.ts';
import { isoTime } from '../output/json.ts';
import type { Style } from '../output/style.ts';
import { table } from '../output/table.ts';
import { statusOf, unansweredText } from '../output/unanswered.ts';
import { age, plural } from '../output/units.ts';
import { type Answer, roleNames, type Unanswered } from '../plane/member.ts';
import { type RefusalView, refusalText, refusalViews } from '../plane/refusals.ts';
import { warningsOf } from '../plane/warnings.ts';

interface MemberView {
  readonly member: string;
  readonly address: string;
  readonly program: string;
  readonly roles: readonly string[];
  readonly version: string;
  readonly runtime: string;
  readonly zone: string;
  readonly started: string;
  readonly uptimeMs: number;
  readonly ready: boolean;
  readonly checks: readonly { readonly name: string; readonly ok: boolean; readonly detail: string }[];
  readonly sessions: number;
  readonly tunnels: number;
  readonly pendingDials: number;
  readonly parkedDials: number;
  /** Over the last 10 s, for the member's first role: the dials of a plane are those of its gateways. */
  readonly dialsPerSecond: number;
  readonly failuresPerSecond: number;
  /** What to fix although it is ready. */
  readonly notices: readonly string[];
  /** Who it refused of late. */
  readonly refusals: readonly RefusalView[];
  /** Of one that is not ready: what it warned of last. */
  readonly warnings?: readonly string[];
}

interface StatusView {
  readonly plane: string;
  readonly members: readonly MemberView[];
  readonly unanswered: readonly Unanswered[];
}

export const status = command({
  name: 'status',
  summary: 'List the members of a plane, whether each is ready (or why not), and what it carries',
  examples: [
    { line: 'status', does: 'the plane of the gateway or hub on this machine' },
    { line: 'status -a 10.0.0.5:8095,10.0.0.6:8095', does: 'ask the second one if the first is down' },
    { line: 'status -o json', does: 'the same, for programs' },
  ],
  async run({ output, plane }: Call) {
    const met = await plane();
    const { answers, unanswered } = await met.ask((admin, signal) => admin.getStatus({}, { signal }));
    const unready = answers.filter(({ value }) => !value.ready).map(({ member }) => member);
    const warnings = await warningsOf(met, unready);
    const members = answers.map((answer) => {
      const warned = warnings.get(answer.member.id);
      return { ...memberView(answer), ...(warned && { warnings: warned }) };
    });
    const name = answers.find(({ value }) => value.plane !== '')?.value.plane ?? '';
    output.show({ plane: name, members, unanswered }, (view) => statusText(view, output.style));
    return statusOf(
      members.some(({ ready }) => !ready),
      unanswered,
    );
  },
});

export function memberView({ member, value }: Answer<adminApi.GetStatusResponse>): MemberView {
  const { checks, sessions, tunnels, pendingDials, parkedDials, startedMs, nowMs } = value;
  const [rate] = value.dialRates;
  return {
    member: member.id,
    address: member.address,
    program: value.program,
    roles: roleNames(value.roles),
    version: value.version,
    runtime: value.runtime,
    zone: value.zone,
    started: isoTime(startedMs),
    uptimeMs: Math.max(0, Number(nowMs - startedMs)),
    ready: value.ready,
    checks: checks.map(({ name, ok, detail }) => ({ name, ok, detail })),
    sessions,
    tunnels,
    pendingDials,
    parkedDials,
    dialsPerSecond: rate?.dialsPerSecond ?? 0,
    failuresPerSecond: rate?.failuresPerSecond ?? 0,
    notices: value.warnings,
    refusals: refusalViews(value),
  };
}

const COLUMNS = [
  ...['member', 'roles', 'ready', 'version', 'zone', 'up'],
  ...['sessions', 'tunnels', 'dials/s', 'failed/s'].map((name) => ({ name, right: true }) as const),
  'address',
];

export function statusText({ plane, members, unanswered }: StatusView, style: Style): string {
  const rows = members.map((member) => [
    member.member,
    member.roles.join('+'),
    member.ready ? style.good('yes') : style.bad('NO'),
    member.version,
    member.zone,
    age(member.uptimeMs),
    String(member.sessions),
    String(member.tunnels),
    member.dialsPerSecond.toFixed(1),
    member.failuresPerSecond > 0 ? style.bad(member.failuresPerSecond.toFixed(1)) : '0.0',
    member.address,
  ]);
  const silent = unanswered.map(({ member, address }) => {
    return [member, '', style.bad('no answer'), '', '', '', '', '', '', '', address];
  });
  const count = plural(rows.length + silent.length, 'member');
  const alone = members.every(({ roles }) => roles.includes('agent')) ? 'An agent' : 'A program outside any plane';
  const title = plane === '' ? alone : `Plane ${plane}: ${count}`;
  const unready = members.flatMap(({ member, checks, warnings = [] }) => [
    ...checks.filter(({ ok }) => !ok).map(({ name, detail }) => `  ${member}: ${name}: ${detail}\n`),
    ...warnings.map((warning) => `  ${member} warned: ${warning}\n`),
  ]);
  const why = unready.length > 0 ? `\nNot ready:\n${unready.join('')}` : '';
  const noticed = members.flatMap(({ member, notices }) => notices.map((notice) => `  ${member}: ${notice}\n`));
  const todo = noticed.length > 0 ? `\nTo fix:\n${noticed.join('')}` : '';
  const refused = members.flatMap(({ member, refusals }) =>
    refusals.map((refusal) => `  ${member}, port for ${refusal.where}: ${refusalText(refusal)}\n`),
  );
  const kept = refused.length > 0 ? `\nRejected recently:\n${refused.join('')}` : '';
  return `${style.strong(title)}\n\n${table(COLUMNS, [...rows, ...silent])}${why}${todo}${kept}${unansweredText(unanswered)}`;
}
