import type { Flag } from './flag.ts';
import { byTopic, defaultText } from './help.ts';
import { PROGRAMS } from './programs.ts';

const INTRODUCTION = `# Flags

Every flag of every program. \`npm run generate\` writes this page from the tables in \`libs/flags/src\`; \`npm run ok\` fails if
it is out of date.

Programs read values as Go's pflag does: \`--name=value\` or \`--name value\`; \`--bool\`, \`--bool=false\`; durations such as
\`1h30m\`, \`1.5s\`, \`100ms\`; lists with commas or by repeating the flag. Underscores in names count as dashes. An unknown flag, a malformed
value or an unusable file ends the program with one line and status 1, before anything starts.

Flags without a mark come from upstream (proxy-server and proxy-agent of apiserver-network-proxy) and keep their names, types
and defaults. **own** marks flags that only Isthmus has. **inert** marks flags of upstream that have no effect here: programs accept them
and name them in one warning.
`;

/** Returns the text of docs/FLAGS.md. */
export function flagsMarkdown(): string {
  const sections = PROGRAMS.map(({ name, summary, flags }) => {
    const topics = [...byTopic(flags)].map(([topic, rows]) => `### ${topic}\n\n${tableOf(rows)}\n`);
    return `## ${name}\n\n${summary}\n\n${topics.join('\n')}`;
  });
  return [INTRODUCTION, ...sections].join('\n');
}

function tableOf(rows: readonly [string, Flag][]): string {
  const lines = rows.map(([name, flag]) => {
    const names = [`\`--${name}\``, ...(flag.short ? [`\`-${flag.short}\``] : [])].join(', ');
    const initial = defaultText(flag);
    const shown = flag.unset ? initial : initial && `\`${initial}\``;
    return `| ${names} | ${flag.kind.name} | ${shown} | ${cell(description(flag))} |`;
  });
  return ['| flag | type | default | what it does |', '| --- | --- | --- | --- |', ...lines].join('\n');
}

function description(flag: Flag): string {
  const mark = flag.own ? '**own** ' : flag.inert === undefined ? '' : '**inert** ';
  const why = flag.inert === undefined ? '' : ` Has no effect here: ${flag.inert}.`;
  const old = (flag.oldNames ?? []).map(({ name }) => ` Old name: \`--${name}\`.`).join('');
  return `${mark}${flag.help}${why}${old}`;
}

function cell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
}
