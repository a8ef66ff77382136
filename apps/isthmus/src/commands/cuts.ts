import { type CutGroup, groupsOfCuts } from '@isthmus/findings';
import type { adminApi } from '@isthmus/proto/admin';
import { Option } from 'commander';
import { type Call, command, count, durationOption } from '../command.ts';
import { ISTHMUS } from '../defaults.ts';
import { age, bytes, isoTime, plural, type Style } from '../output.ts';
import type { Answer } from '../plane/member.ts';
import { type Column, table } from '../table.ts';

interface CutView {
  readonly at: string;
  /** agent, gateway, hold, path, limit, credential or operator. */
  readonly by: string;
  readonly reason: string;
  readonly tenant: string;
  readonly caller: string;
  readonly destination: string;
  readonly agent: string;
  readonly hub: string;
  /** The gateway. */
  readonly member: string;
  readonly dial: string;
  /** Empty without a trace. */
  readonly trace: string;
  readonly ageMs: number;
  readonly bytesUp: number;
  readonly bytesDown: number;
}

interface CutsView {
  /** Cuts of one cause together. The last first, as `cuts`. */
  readonly groups: readonly (Omit<CutGroup, 'firstMs' | 'lastMs'> & {
    readonly first: string;
    readonly last: string;
  })[];
  readonly cuts: readonly CutView[];
  /** More than listed if --limit cut the list. */
  readonly total: number;
  /** How many more there were in the last hour that gateways do not keep. */
  readonly forgotten: number;
}

interface Options {
  readonly since: number;
  readonly limit: number;
}

export const cuts = command({
  name: 'cuts',
  summary: 'List the tunnels that the plane cut, with who dialled, where to, and what cut them',
  details:
    'A cut is an end that neither the caller nor the destination wanted; kubectl may have reported a cut exec as success. Gateways remember the last hour, and forget it when they restart: audit records (`cut`) and logs keep it.',
  options: [
    durationOption('--since <duration>', 'how far to look back, at most an hour', ISTHMUS.cutsMs),
    new Option('--limit <count>', 'most tunnels to list').argParser(count).default(ISTHMUS.tunnelsListed),
  ],
  examples: [
    { line: 'cuts', does: 'what was cut in the last hour, by cause and one by one' },
    { line: 'cuts --since 10m -o wide', does: 'with traces, dials and bytes' },
  ],
  async run({ options, output, plane }: Call<Options>) {
    const { answers, unanswered } = await (await plane()).ask(
      (admin, signal) => admin.getHistory({ tenant: options.tenant }, { signal }),
      'gateway',
    );
    return output.answers({ ...cutsOf(answers, options, Date.now()), unanswered }, cutsText);
  },
});

export function cutsOf(
  answers: readonly Answer<Pick<adminApi.GetHistoryResponse, 'cuts' | 'cutsForgotten'>>[],
  { since, limit }: Options,
  now: number,
): CutsView {
  const all = answers
    .flatMap(({ member, value }) => value.cuts.map((cut) => ({ ...cutView(cut, member.id), atMs: Number(cut.atMs) })))
    .filter(({ atMs }) => now - atMs <= since)
    .sort((a, b) => b.atMs - a.atMs);
  const groups = groupsOfCuts(all).map(({ firstMs, lastMs, ...group }) => {
    return { ...group, first: isoTime(firstMs), last: isoTime(lastMs) };
  });
  const cuts = all.slice(0, limit).map(({ atMs: _sortedBy, ...cut }) => cut);
  const forgotten = answers.reduce((sum, { value }) => sum + Number(value.cutsForgotten), 0);
  return { groups, cuts, total: all.length, forgotten };
}

function cutView({ atMs, ageMs, bytesUp, bytesDown, ...cut }: adminApi.Cut, member: string): CutView {
  return {
    at: isoTime(atMs),
    by: cut.by,
    reason: cut.reason,
    tenant: cut.tenant,
    caller: cut.caller,
    destination: cut.destination,
    agent: cut.agentId,
    hub: cut.hubId,
    member,
    dial: cut.dialId,
    trace: cut.traceId,
    ageMs: Number(ageMs),
    bytesUp: Number(bytesUp),
    bytesDown: Number(bytesDown),
  };
}

const GROUP_COLUMNS: readonly Column[] = [
  { name: 'last' },
  { name: 'by' },
  { name: 'what', least: 12 },
  { name: 'tunnels', right: true },
  { name: 'reason', least: 16 },
];

const COLUMNS: readonly Column[] = [
  { name: 'cut' },
  { name: 'by' },
  { name: 'tenant', least: 8, drop: 1 },
  { name: 'caller', least: 10, drop: 3 },
  { name: 'destination', least: 16 },
  { name: 'agent', least: 10 },
  { name: 'age' },
  { name: 'up', right: true, wide: true },
  { name: 'down', right: true, wide: true },
  { name: 'gateway', wide: true },
  { name: 'dial', drop: 2 },
  { name: 'trace', wide: true },
];

export function cutsText({ groups, cuts, total, forgotten }: CutsView, style: Style): string {
  const more =
    forgotten > 0
      ? `${plural(forgotten, 'more tunnel')} of the last hour ${forgotten === 1 ? 'is' : 'are'} not kept: see the audit records.\n`
      : '';
  if (total === 0) return `No tunnel was cut.\n${more}`;
  const causes = groups.map(({ last, by, what, tunnels, reason }) => [
    last,
    style.bad(by),
    what,
    String(tunnels),
    reason,
  ]);
  const rows = cuts.map((cut) => [
    cut.at,
    cut.by,
    cut.tenant,
    cut.caller,
    cut.destination,
    cut.agent,
    age(cut.ageMs),
    bytes(cut.bytesUp),
    bytes(cut.bytesDown),
    cut.member,
    cut.dial,
    cut.trace,
  ]);
  const rest = total > cuts.length ? ` of ${total} (--limit shows more)` : '';
  return `${table(GROUP_COLUMNS, causes, style)}\n${table(COLUMNS, rows, style)}\n${plural(cuts.length, 'cut tunnel')}${rest}\n${more}`;
}
