import { cutsIn, groupsOfCuts } from '@isthmus/findings';
import type { adminApi } from '@isthmus/proto/admin';
import { Option } from 'commander';
import { type Call, count, durationOption } from '../command.ts';
import { ISTHMUS } from '../defaults.ts';
import { type Kind, type ListColumn, type Listed, listCommand, rowsTable, type Whole } from '../lists.ts';
import { age, bytes, isoTime, plural, renamed, type Style } from '../output.ts';
import type { Answer } from '../plane/member.ts';

type CutView = ReturnType<typeof cutView>;

interface Options {
  readonly since: number;
}

interface More {
  readonly groups: ReturnType<typeof groupsIn>;
  /** How many more there were in the last hour that gateways do not keep. */
  readonly forgotten: number;
}

export const CUTS: Kind<CutView, More> = {
  name: 'cuts',
  one: 'cut',
  past: true,
  names: ({ dial }) => [dial],
  // The list has the reasons of all above it.
  columns: () => [...COLUMNS, REASON],
  async ask({ options, plane }: Call<Partial<Options>>) {
    const { tenant } = options;
    const { answers, unanswered } = await (await plane()).ask('getHistory', { tenant }, { roles: ['gateway'] });
    return { ...cutsOf(answers, options.since ?? ISTHMUS.cutsMs), unanswered };
  },
};

export const cuts = listCommand(CUTS, {
  summary: 'List the tunnels that the plane cut, with who dialled, where to, and what cut them',
  details:
    'A cut is an end that neither the caller nor the destination wanted; kubectl may have reported a cut exec as success. Gateways remember the last hour, and forget it when they restart: audit records (`cut`) and logs keep it.',
  options: [
    durationOption('--since <duration>', 'how far to look back, at most an hour', ISTHMUS.cutsMs),
    new Option('--limit <count>', 'most cuts to list').argParser(count).default(ISTHMUS.cutsListed),
  ],
  examples: {
    cuts: 'what was cut in the last hour, by cause and one by one',
    'cuts --since 10m -o wide': 'with traces, dials and bytes',
    'cuts --field-selector by=agent -w': "those by agents' ends, live",
  },
});

/** Returns the cuts of the last `since` milliseconds, the last first. */
export function cutsOf(
  answers: readonly Answer<Pick<adminApi.GetHistoryResponse, 'cuts' | 'cutsForgotten' | 'nowMs'>>[],
  since: number,
): Omit<Listed<CutView, More>, 'unanswered'> {
  const late = ({ cuts, nowMs }: Pick<adminApi.GetHistoryResponse, 'cuts' | 'nowMs'>) =>
    cuts.filter(({ atMs }) => nowMs - atMs <= since);
  const items = cutsIn(answers.map(({ member, value }) => ({ member: member.id, cuts: late(value) }))).map(cutView);
  const forgotten = answers.reduce((sum, { value }) => sum + value.cutsForgotten, 0);
  return {
    items,
    more: (all) => ({ groups: groupsIn(all), forgotten }),
    text: cutsText,
  };
}

/** Cuts of one cause together. The last first. */
function groupsIn(cuts: readonly CutView[]) {
  return groupsOfCuts(cuts.map((cut) => ({ ...cut, agentId: cut.agent, atMs: Date.parse(cut.at) }))).map(
    ({ firstMs, lastMs, ...group }) => {
      return { ...group, first: isoTime(firstMs), last: isoTime(lastMs) };
    },
  );
}

function cutView({ atMs, gateway: _of, ...cut }: ReturnType<typeof cutsIn>[number]) {
  return { at: isoTime(atMs), ...renamed(cut) };
}

type Group = ReturnType<typeof groupsIn>[number];

const REASON: ListColumn<{ readonly reason: string }> = {
  name: 'reason',
  least: 12,
  folds: true,
  of: ({ reason }) => reason,
};

const GROUP_COLUMNS: readonly ListColumn<Group>[] = [
  { name: 'last', of: ({ last }) => last },
  { name: 'by', of: ({ by }, style) => style.bad(by) },
  { name: 'what', least: 12, of: ({ what }) => what },
  { name: 'tenant', least: 8, drop: 1, of: ({ tenant }) => tenant },
  { name: 'tunnels', right: true, of: ({ tunnels }) => String(tunnels) },
  { name: 'told by hold', of: ({ hold }) => hold },
  REASON,
];

const COLUMNS: readonly ListColumn<CutView>[] = [
  { name: 'cut', of: ({ at }) => at },
  { name: 'by', of: ({ by }) => by },
  { name: 'tenant', least: 8, drop: 1, of: ({ tenant }) => tenant },
  { name: 'caller', least: 10, drop: 3, of: ({ caller }) => caller },
  { name: 'destination', least: 16, of: ({ destination }) => destination },
  { name: 'agent', least: 10, of: ({ agent }) => agent },
  { name: 'age', drop: 4, of: ({ ageMs }) => age(ageMs) },
  { name: 'up', right: true, wide: true, of: ({ bytesUp }) => bytes(bytesUp) },
  { name: 'down', right: true, wide: true, of: ({ bytesDown }) => bytes(bytesDown) },
  { name: 'gateway', wide: true, of: ({ member }) => member },
  { name: 'told by hold', wide: true, of: ({ hold }) => hold },
  { name: 'dial', drop: 2, of: ({ dial }) => dial },
  { name: 'trace', wide: true, of: ({ trace }) => trace },
];

function cutsText(
  cuts: readonly CutView[],
  style: Style,
  { all, more: { groups, forgotten } }: Whole<CutView, More>,
): string {
  const rest =
    forgotten > 0
      ? `${plural(forgotten, 'more tunnel')} of the last hour ${forgotten === 1 ? 'is' : 'are'} not kept: see the audit records, and the log of isthmus hold.\n`
      : '';
  if (all.length === 0) return `No tunnel was cut.\n${rest}`;
  const part = all.length > cuts.length ? ` of ${all.length} (--limit shows more)` : '';
  return `${rowsTable(GROUP_COLUMNS, groups, style)}\n${rowsTable(COLUMNS, cuts, style)}\n${plural(cuts.length, 'cut tunnel')}${part}\n${rest}`;
}
