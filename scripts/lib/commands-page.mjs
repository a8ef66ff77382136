import { commonOptions } from '../../apps/isthmus/src/command.ts';
import { EXIT_STATUS, GROUPS } from '../../apps/isthmus/src/program.ts';

/** Returns the tables of docs/COMMANDS.md: what `isthmus --help` says, and the first words of each command's own help. */
export function commandsMarkdown() {
  const groups = GROUPS.map(([heading, commands]) =>
    [`## ${heading.replace(/:$/, '')}\n`, ...table(['command', 'does', 'options'], commands.map(commandCells))].join(
      '\n',
    ),
  );
  const common = table(
    ['option', 'means', 'from'],
    commonOptions().map(({ flags, description, envVar }) => [
      code(flags),
      text(description),
      envVar ? code(envVar) : '',
    ]),
  );
  const statuses = [...EXIT_STATUS.replaceAll(/\n {4,}/g, ' ').matchAll(/^ +(\d) +(.+)$/gm)].map(
    ([, ...cells]) => cells,
  );
  return `${[
    ...groups,
    ['## Options of every command\n', ...common].join('\n'),
    ['## Exit status\n', ...table(['status', 'means'], statuses)].join('\n'),
  ].join('\n\n')}\n`;
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

function table(head, rows) {
  return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`);
}

function code(words) {
  return `\`${words.replaceAll('|', '\\|')}\``;
}

function text(words) {
  return words.replaceAll('|', '\\|').replaceAll('<', '&lt;');
}
