import type { Flag, FlagTable } from './flag.ts';

const COLUMN = 40;
const WIDTH = 118;

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

/** Returns the visible flags under their topics, in the order of the table. */
export function byTopic(table: FlagTable): Map<string, [string, Flag][]> {
  const topics = new Map<string, [string, Flag][]>();
  for (const entry of Object.entries(table)) {
    const { topic, hidden } = entry[1];
    if (hidden) continue;
    const flags = topics.get(topic);
    if (flags) flags.push(entry);
    else topics.set(topic, [entry]);
  }
  return topics;
}

/** Returns a flag's default as written on the command line; empty for zero values, as in pflag. */
export function defaultText({ kind, initial, unset }: Flag): string {
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
