import type { Flag } from './flag.ts';
import { byTopic, defaultText } from './help.ts';
import { PROGRAMS } from './programs.ts';

const INTRODUCTION = `# Flags

Every flag of every program. This page is generated from the tables in \`libs/flags/src\`; \`npm run ok\` fails when it
is out of date.

Values are written as Go's pflag reads them: \`--name=value\` or \`--name value\`; \`--bool\`, \`--bool=false\`; durations such as
\`1h30m\`, \`1.5s\`, \`100ms\`; lists with commas or by repeating the flag. Underscores in names count as dashes. What is not
known, is malformed, or names a file that cannot be used ends the program with one line and status 1 before anything
has started.

Flags without a mark are upstream's (proxy-server and proxy-agent of apiserver-network-proxy) and keep their names, types
and defaults. **own** marks ours. **inert** marks those whose purpose does not exist here: they are taken, and named once in a
warning.
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
  const why = flag.inert === undefined ? '' : ` Changes nothing here: ${flag.inert}.`;
  const old = (flag.oldNames ?? []).map(({ name }) => ` Also taken as \`--${name}\`.`).join('');
  return `${mark}${flag.help}${why}${old}`;
}

function cell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
}
