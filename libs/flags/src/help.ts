import { getOrPut } from '@isthmus/runtime';
import type { Flag, FlagTable } from './flag.ts';
import { isthmusHold, isthmusTenantsSync, PROGRAMS } from './programs.ts';

/** Returns the text of --help: flags by topic, with types and defaults. */
export function helpText(program: {
  readonly name: string;
  readonly summary: string;
  readonly flags: FlagTable;
}): string {
  const lines = [program.summary, '', 'Usage:', `  ${program.name} [flags]`];
  for (const [topic, flags] of byTopic(program.flags)) {
    lines.push('', `${topic}:`, ...flags.flatMap(([name, flag]) => flagLines(name, flag)));
  }
  return `${lines.join('\n')}\n`;
}

/** Returns the lists of docs/FLAGS.md: each flag once, with the programs that have it. Flags without effect come last, by the reason. */
export function flagsMarkdown(): string {
  const all = [...PROGRAMS, isthmusHold, isthmusTenantsSync];
  const topics = new Map<string, Map<string, string[]>>();
  const without = new Map<string, Set<string>>();
  for (const { name, flags } of all) {
    for (const [topic, rows] of byTopic(flags)) {
      for (const [flag, row] of rows) {
        if (row.inert === undefined) {
          const lines = getOrPut(topics, topic, () => new Map<string, string[]>());
          getOrPut(lines, lineOf([flag, row]), () => []).push(letterOf(name));
        } else {
          getOrPut(without, row.inert, () => new Set<string>()).add(flag);
        }
      }
    }
  }
  const sections = [...topics].map(([topic, lines]) => {
    const list = [...lines].map(([line, letters]) => `- ${letters.join('')} ${line}`);
    return [`## ${topic}\n`, ...list].join('\n');
  });
  const inert = [...without].map(
    ([why, flags]) => `- ${Array.from(flags, (flag) => `\`--${flag}\``).join(', ')}: ${why}.`,
  );
  return `${[...sections, `${WITHOUT_EFFECT}\n${inert.join('\n')}`].join('\n\n')}\n`;
}

const COLUMN = 40;

const WIDTH = 118;

/** Returns the visible flags under their topics, in the order of the table. */
function byTopic(table: FlagTable): Map<string, [string, Flag][]> {
  const visible = Object.entries(table).filter(([, { hidden }]) => !hidden);
  return Map.groupBy(visible, ([, { topic }]) => topic);
}

/** Returns a flag's default as written on the command line; empty for zero values, as in pflag. */
function defaultText({ kind, initial, unset }: Flag): string {
  if (unset) return unset.text;
  const text = kind.write(initial);
  return ['', '0', '0s', 'false', '[]'].includes(text) ? '' : text;
}

function flagLines(name: string, flag: Flag): string[] {
  const type = flag.kind.bare === undefined ? ` ${flag.kind.name}` : '';
  const left = `${flag.short ? `  -${flag.short}, ` : '      '}--${name}${type}`;
  const initial = defaultText(flag);
  const inert = flag.inert === undefined ? '' : ` Has no effect here: ${flag.inert}.`;
  const right = wrapped(`${flag.help}${inert}${initial && ` (default ${initial})`}`, WIDTH - COLUMN);
  const [first = '', ...others] = left.length < COLUMN - 1 ? right : ['', ...right];
  return [`${left.padEnd(COLUMN)}${first}`.trimEnd(), ...others.map((line) => ' '.repeat(COLUMN) + line)];
}

function wrapped(text: string, width: number): string[] {
  const lines = [''];
  for (const word of text.split(' ')) {
    const line = lines.at(-1) as string;
    if (line !== '' && line.length + 1 + word.length > width) lines.push(word);
    else lines[lines.length - 1] = line === '' ? word : `${line} ${word}`;
  }
  return lines;
}

const WITHOUT_EFFECT = `## Accepted, without effect

Flags of upstream that do nothing here. Programs accept them and name them in one warning.
`;

/** `S` for proxy-server, and so on. */
function letterOf(program: string): string {
  const name = program.replace(/^isthmus (?=tenants )/, '');
  return (name.split('-').at(-1) ?? '').slice(0, 1).toUpperCase();
}

function lineOf([name, flag]: [string, Flag]): string {
  const names = [`\`--${name}\``, ...(flag.short ? [`\`-${flag.short}\``] : [])].join(', ');
  const initial = defaultText(flag);
  const shown = initial && (flag.unset ? ` (${initial})` : ` \`${initial}\``);
  const old = (flag.oldNames ?? []).map(({ name }) => ` Old name: \`--${name}\`.`).join('');
  return `${names}${flag.own ? ' ★' : ''} ${flag.kind.name}${shown}: ${text(flag.help)}${old}`;
}

function text(help: string): string {
  return help.replaceAll('<', '&lt;').replaceAll('*', '\\*');
}
