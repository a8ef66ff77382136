import { Argument, Option } from 'commander';
import { duration } from '../arguments.ts';
import { type Call, command } from '../command.ts';
import { usage } from '../exit.ts';
import { isoTime } from '../output/json.ts';
import { table } from '../output/table.ts';
import { statusOf, unansweredText } from '../output/unanswered.ts';
import { memberOf } from '../plane/choose.ts';

interface Options {
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
    new Option('--for <duration>', 'go back to the earlier level after this time').argParser(duration),
    new Option('--member <id>', 'only this member'),
  ],
  examples: [
    { line: 'log-level', does: 'the current levels' },
    { line: 'log-level debug --for 10m', does: 'on all members, while you look into a problem' },
    { line: 'log-level info --member hub-1', does: 'one member' },
  ],
  async run({ args: [level = ''], options, output, plane }: Call<Options>) {
    const { for: durationMs = 0, member } = options;
    if (level === '' && durationMs > 0) throw usage('--for needs a level: isthmus log-level debug --for 10m');
    if (level !== '' && !/^(trace|debug|info|warn|error|\d{1,2})$/.test(level)) {
      throw usage(`unknown level ${JSON.stringify(level)}: want trace, debug, info, warn, error, or a number as in -v`);
    }
    const met = await plane();
    const members = member === undefined ? met.members : [memberOf(met, member)];
    const { answers, unanswered } = await met.askThese(members, (admin, signal) =>
      admin.setLogLevel({ level, durationMs }, { signal }),
    );
    const levels = answers.map(({ member: { id }, value }) => ({
      member: id,
      level: value.level,
      previous: value.previous,
      ...(value.untilMs !== undefined && { until: isoTime(value.untilMs), revertsTo: value.revertsTo }),
    }));
    output.show({ levels, unanswered }, () => {
      const rows = levels.map((each) => [
        each.member,
        each.level,
        each.previous,
        each.until ?? '',
        each.revertsTo ?? '',
      ]);
      return table(['member', 'level', 'before', 'until', 'then'], rows) + unansweredText(unanswered);
    });
    return statusOf(false, unanswered);
  },
});
