import { type Difference, differencesOf } from '@isthmus/findings';
import { adminApi, namesOf } from '@isthmus/proto/admin';
import { Argument, Option } from 'commander';
import { type Call, command, durationOption } from '../command.ts';
import { CONTEXT_ACTIONS, type ContextAction, contextAction } from '../contexts.ts';
import { isoTime, type Style, usage } from '../output.ts';
import type { Answer, Answers } from '../plane/member.ts';
import { memberOf, type Plane } from '../plane/plane.ts';
import { table } from '../table.ts';

type MemberConfig = ReturnType<typeof configView>;

interface ConfigView {
  readonly members: readonly MemberConfig[];
  readonly differences: readonly Difference[];
}

interface Options {
  readonly member?: string;
  readonly all?: true;
}

export const config = command({
  name: 'config',
  summary: 'Show the flags of each member, and where replicas differ; or keep contexts: planes to ask, by name',
  details:
    'Contexts are as in kubectl: set-context NAME keeps --address, --ca, --cert, --key and --tenant of its command line under a name, use-context NAME makes them the defaults of every command, get-contexts lists them, and delete-context NAME forgets one. They are in the file of ISTHMUSCONFIG, or ~/.isthmus/config, which names the files of certificates and keys. --address, and ISTHMUS_ADDRESS, count before the current context; --context NAME counts before the environment.\n\nWithout any of these words, it shows flags that differ from their defaults, without secrets. Names, addresses and certificates differ between replicas anyway and do not count. Exits with 1 if replicas differ.',
  args: [
    new Argument('[action]', 'for contexts').choices(CONTEXT_ACTIONS),
    new Argument('[name]', "the context's name"),
  ],
  options: [new Option('--member <id>', 'only this member'), new Option('--all', 'also flags that have their default')],
  examples: {
    config: 'flags that were set, and differences',
    'config --member gateway-1 --all': 'every flag of one member',
    'config set-context prod --address gw-1.example:8095 --ca admin-ca.pem --cert me.pem --key me-key.pem':
      'so that nothing is typed twice',
    'config use-context prod': 'from now on',
  },
  asksNobody: ([action]) => action !== undefined,
  async run(call: Call<Options>) {
    const { args, options, output, plane } = call;
    const [action, name] = args as [ContextAction?, string?];
    if (action !== undefined) return await contextAction(action, name, call);
    const { answers, unanswered } = await configsOf(await plane(), options.member);
    const members = answers.map(configView);
    const view = { members, differences: differencesOf(members), unanswered };
    const text = (shown: ConfigView, style: Style) => configText(shown, options.all === true, style);
    return output.answers(view, text, view.differences.length > 0);
  },
});

export function configsOf(plane: Plane, id?: string): Promise<Answers<adminApi.GetConfigResponse>> {
  const members = id === undefined ? plane.members : [memberOf(plane, id)];
  return plane.ask('getConfig', {}, { members });
}

const SOURCES = namesOf(adminApi.Flag_Source, 'SOURCE');

export function configView({ member, value }: Answer<adminApi.GetConfigResponse>) {
  const flags = value.flags.map(({ name, value: text, source, initial }) => {
    // `derived` is not given, but set at startup, such as a new UUID.
    return { name, value: text, source: SOURCES[source] ?? 'default', default: initial };
  });
  return { member: member.id, program: value.program, flags };
}

export function configText({ members, differences }: ConfigView, all: boolean, style: Style): string {
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
  return blocks.join('\n') + found;
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

interface LogLevelOptions {
  readonly member?: string;
  readonly for?: number;
}

export const logLevel = command({
  name: 'log-level',
  summary: 'Show or change how much members log, optionally for a limited time',
  args: [
    new Argument(
      '[level]',
      'trace, debug, info, warn, error, or a number as in -v; without it, shows the current level',
    ),
  ],
  options: [
    durationOption('--for <duration>', 'go back to the earlier level after this time'),
    new Option('--member <id>', 'only this member'),
  ],
  examples: {
    'log-level': 'the current levels',
    'log-level debug --for 10m': 'on all members, while you look into a problem',
    'log-level info --member hub-1': 'one member',
  },
  async run({ args: [level = ''], options, output, plane }: Call<LogLevelOptions>) {
    const { for: durationMs = 0, member } = options;
    if (level === '' && durationMs > 0) throw usage('--for needs a level: isthmus log-level debug --for 10m');
    if (level !== '' && !/^(trace|debug|info|warn|error|\d{1,2})$/.test(level)) {
      throw usage(`unknown level ${JSON.stringify(level)}: want trace, debug, info, warn, error, or a number as in -v`);
    }
    const met = await plane();
    const members = member === undefined ? met.members : [memberOf(met, member)];
    const { answers, unanswered } = await met.ask('setLogLevel', { level, durationMs }, { members });
    const levels = answers.map(({ member: { id }, value }) => ({
      member: id,
      level: value.level,
      previous: value.previous,
      ...(value.untilMs !== undefined && { until: isoTime(value.untilMs), revertsTo: value.revertsTo }),
    }));
    return output.answers({ levels, unanswered }, ({ levels: shown }) => {
      const rows = shown.map((each) => [
        each.member,
        each.level,
        each.previous,
        each.until ?? '',
        each.revertsTo ?? '',
      ]);
      return table(['member', 'level', 'before', 'until', 'then'], rows);
    });
  },
});
