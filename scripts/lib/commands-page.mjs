import { commonOptions } from '../../apps/isthmus/src/command.ts';
import { EXIT_STATUS, GROUPS } from '../../apps/isthmus/src/program.ts';
import { markdownTable } from '../../test/src/harness/docs-page.ts';

/** Returns the tables of docs/COMMANDS.md: what `isthmus --help` says, and the first words of each command's own help. */
export function commandsMarkdown() {
  const common = commonOptions().map(({ flags, description, envVar }) => [
    code(flags),
    text(description),
    envVar ? code(envVar) : '',
  ]);
  const statuses = [...EXIT_STATUS.replaceAll(/\n {4,}/g, ' ').matchAll(/^ +(\d) +(.+)$/gm)];
  const sections = [
    ...GROUPS.map(([heading, commands]) => [
      heading.replace(/:$/, ''),
      ['command', 'does', 'options'],
      commands.map(commandCells),
    ]),
    ['Options of every command', ['option', 'means', 'from'], common],
    ['Exit status', ['status', 'means'], statuses.map(([, ...cells]) => cells)],
  ];
  return `${sections.map(([heading, head, rows]) => `## ${heading}\n\n${markdownTable(head, rows)}`).join('\n\n')}\n`;
}

function commandCells({ name, summary, args = [], options = [] }) {
  const named = args.map((argument) => {
    const shown = `${argument.name()}${argument.variadic ? '...' : ''}`;
    return argument.required ? `<${shown}>` : `[${shown}]`;
  });
  return [
    code([name, ...named].join(' ')),
    text(summary),
    options.map(({ long, short }) => code(long ?? short)).join(', '),
  ];
}

function code(words) {
  return `\`${words}\``;
}

function text(words) {
  return words.replaceAll('<', '&lt;');
}
