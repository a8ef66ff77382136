import { type Difference, differencesOf } from '@isthmus/findings';
import { adminApi } from '@isthmus/proto/admin';
import { Option } from 'commander';
import { type Call, command } from '../command.ts';
import type { Style } from '../output/style.ts';
import { table } from '../output/table.ts';
import { statusOf, unansweredText } from '../output/unanswered.ts';
import { memberOf } from '../plane/choose.ts';
import type { Answer, Answers, Unanswered } from '../plane/member.ts';
import type { Plane } from '../plane/plane.ts';

interface FlagView {
  readonly name: string;
  readonly value: string;
  /** `derived`: not given, but set at startup, such as a new UUID. */
  readonly source: 'default' | 'given' | 'derived';
  readonly default: string;
}

interface MemberConfig {
  readonly member: string;
  readonly program: string;
  readonly flags: readonly FlagView[];
}

interface ConfigView {
  readonly members: readonly MemberConfig[];
  readonly differences: readonly Difference[];
  readonly unanswered: readonly Unanswered[];
}

interface Options {
  readonly member?: string;
  readonly all?: true;
}

export const config = command({
  name: 'config',
  summary: 'Show the flags of each member, and where replicas of one program differ',
  details:
    'Shows flags that differ from their defaults, without secrets. Names, addresses and certificates differ between replicas anyway and do not count. Exits with 1 if replicas differ.',
  options: [new Option('--member <id>', 'only this member'), new Option('--all', 'also flags that have their default')],
  examples: [
    { line: 'config', does: 'flags that were set, and differences' },
    { line: 'config --member gateway-1 --all', does: 'every flag of one member' },
  ],
  async run({ options, output, plane }: Call<Options>) {
    const { answers, unanswered } = await configsOf(await plane(), options.member);
    const members = answers.map(configView);
    const view = { members, differences: differencesOf(members), unanswered };
    output.show(view, () => configText(view, options.all === true, output.style));
    return statusOf(view.differences.length > 0, unanswered);
  },
});

export function configsOf(plane: Plane, id?: string): Promise<Answers<adminApi.GetConfigResponse>> {
  const members = id === undefined ? plane.members : [memberOf(plane, id)];
  return plane.askThese(members, (admin, signal) => admin.getConfig({}, { signal }));
}

const SOURCES: Readonly<Record<number, FlagView['source']>> = {
  [adminApi.Flag_Source.SOURCE_DEFAULT]: 'default',
  [adminApi.Flag_Source.SOURCE_GIVEN]: 'given',
  [adminApi.Flag_Source.SOURCE_DERIVED]: 'derived',
};

export function configView({ member, value }: Answer<adminApi.GetConfigResponse>): MemberConfig {
  const flags = value.flags.map(({ name, value: text, source, initial }) => {
    return { name, value: text, source: SOURCES[source] ?? 'default', default: initial };
  });
  return { member: member.id, program: value.program, flags };
}

export function configText({ members, differences, unanswered }: ConfigView, all: boolean, style: Style): string {
  const programs = [...new Set(members.map(({ program }) => program))];
  const blocks = programs.map((program) => {
    const replicas = members.filter((member) => member.program === program);
    const rows = flagRows(replicas, all);
    const head = style.strong(`${program}: ${replicas.map(({ member }) => member).join(', ')}`);
    const columns = ['flag', 'at', 'value', 'source', 'default'];
    return `${head}\n${rows.length > 0 ? table(columns, rows) : 'all flags have their defaults\n'}`;
  });
  const lines = differences.flatMap(({ program, flag, values }) => [
    style.warning(`${program}: --${flag}`),
    ...values.map(({ member, value }) => `  ${member}: ${value || '(empty)'}`),
  ]);
  const found = lines.length > 0 ? `\nReplicas differ:\n${lines.join('\n')}\n` : '';
  return blocks.join('\n') + found + unansweredText(unanswered);
}

/** Returns one row for a flag that is the same at all replicas, otherwise one row per replica. */
function flagRows(replicas: readonly MemberConfig[], all: boolean): string[][] {
  const names = new Set(replicas.flatMap(({ flags }) => flags.map(({ name }) => name)));
  return [...names].flatMap((name) => {
    const found = replicas.flatMap(({ member, flags }) => {
      const flag = flags.find((each) => each.name === name);
      return flag ? [{ member, flag }] : [];
    });
    if (!all && found.every(({ flag }) => flag.source === 'default')) return [];
    const [first] = found;
    const same = found.length === replicas.length && found.every(({ flag }) => flag.value === first?.flag.value);
    const shown = same && first ? [{ member: replicas.length > 1 ? 'all' : first.member, flag: first.flag }] : found;
    return shown.map(({ member, flag }) => [`--${name}`, member, flag.value, flag.source, flag.default]);
  });
}
