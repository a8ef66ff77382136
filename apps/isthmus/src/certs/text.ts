import { isIPv6 } from 'node:net';
import type { Style } from '../output/style.ts';
import { table } from '../output/table.ts';
import type { Made, ProgramFlags } from './make.ts';

export interface Places {
  /** Names and addresses of gateways and hubs. The first one is in the commands. */
  readonly hosts: readonly string[];
  /** Whether programs are started through npx here. */
  readonly npx: boolean;
}

/** What was made, then commands to paste into a shell: all of them, or one block. */
export function certsText({ dir, files, flags }: Made, places: Places, style: Style): string {
  const rows = files.map(({ path, key, is }) => [path, key, is]);
  const columns = ['certificate', { name: 'its key', drop: 1 }, { name: 'what it is', least: 20 }] as const;
  const blocks = flags.map((each) => `\n${block(each, places, style)}\n`);
  return `Wrote to ${dir}:\n\n${table(columns, rows, style)}\nCommands that use them:\n${blocks.join('')}`;
}

/** One command, with a comment above it and one flag per line. */
function block({ program: named, flags }: ProgramFlags, places: Places, style: Style): string {
  const [, program = named, whose = ''] = /^(\S+) \((.*)\)$/.exec(named) ?? [];
  const { about, before, after } = COMMANDS[program]?.(authority(places.hosts[0] ?? 'localhost')) ?? NOTHING;
  const start = [places.npx && program !== 'curl' ? `npx ${program}` : program, ...before].join(' ');
  const lines = [start, ...flagLines(flags), ...after];
  return `${style.faint(`# ${whose === '' ? about : `${about} ${whose}`}`)}\n${lines.join(' \\\n  ')}`;
}

interface Command {
  readonly about: string;
  /** Words before and after the flags. */
  readonly before: readonly string[];
  readonly after: readonly string[];
}

const NOTHING: Command = { about: '', before: [], after: [] };

const COMMANDS: Readonly<Record<string, (host: string) => Command>> = {
  'proxy-server': () => ({ ...NOTHING, about: 'gateway and hub in one process' }),
  'frontend-gw': () => ({ ...NOTHING, about: 'or a gateway alone, which also needs --redis-url' }),
  'backend-hub': () => ({ ...NOTHING, about: 'and a hub alone, which also needs --redis-url and --advertise-address' }),
  'proxy-agent': (host) => ({
    ...NOTHING,
    about: 'the agent',
    after: [quoted(`--proxy-server-host=${host.replaceAll(/[[\]]/g, '')}`)],
  }),
  // `-p` makes curl use CONNECT for a plain URL, and `--noproxy ''` matters where NO_PROXY lists the gateway.
  curl: (host) => ({
    about: "dials the agent's own health port, which agents refuse (403), as",
    before: ['-sSp', '--noproxy', "''"],
    after: [`--proxy ${quoted(`https://${host}:8090`)}`, 'http://127.0.0.1:8093/readyz'],
  }),
  isthmus: (host) => ({
    about: 'the plane, seen by',
    before: ['status'],
    after: [quoted(`--address=${host}:8095`)],
  }),
};

function authority(host: string): string {
  return isIPv6(host) ? `[${host}]` : host;
}

/** One flag per line. A file that is its own argument stays on the line of its flag. */
function flagLines(given: readonly string[]): string[] {
  const lines: string[] = [];
  for (const argument of given) {
    if (argument.startsWith('--') || lines.length === 0) lines.push(quoted(argument));
    else lines.push(`${lines.pop()} ${quoted(argument)}`);
  }
  return lines;
}

/** Quotes a word for shells, if it needs that. */
function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
