import { isIP } from 'node:net';
import { Argument, InvalidArgumentError, Option } from 'commander';
import { count } from '../arguments.ts';
import { type Made, makeCertificates } from '../certs/make.ts';
import { type Call, command } from '../command.ts';
import { EXIT } from '../exit.ts';
import type { Style } from '../output/style.ts';

interface Options {
  readonly host: readonly string[];
  readonly agent: readonly string[];
  readonly caller: string;
  readonly operator: string;
  readonly days: number;
  readonly force?: true;
}

/** Accepts a DNS name or an address. */
function host(text: string): string {
  const name = /^(\*\.)?[A-Za-z0-9]([\w-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([\w-]*[A-Za-z0-9])?)*$/;
  if (isIP(text) === 0 && !name.test(text)) throw new InvalidArgumentError('want a DNS name or an address');
  return text;
}

/** Accepts a name that can become a subject and part of a file name. */
function subject(text: string): string {
  if (!/^[A-Za-z0-9][\w.:-]{0,62}$/.test(text)) {
    throw new InvalidArgumentError('want up to 63 letters, digits, dots, dashes, colons, underscores');
  }
  return text;
}

const HOSTS = ['localhost', '127.0.0.1', '::1'];
const AGENTS = ['agent'];

function listOf(initial: readonly string[], read: (text: string) => string) {
  return (text: string, before: readonly string[] | undefined): string[] => [
    ...(before === undefined || before === initial ? [] : before),
    ...text.split(',').map((each) => read(each.trim())),
  ];
}

export const certs = command({
  name: 'certs',
  summary: 'Make certificates for a new plane',
  details:
    "Makes four CAs, so that an agent's certificate does not work as a caller's nor a caller's as a hub's, and each party's certificate. In production, issue these certificates with your own CA; the files show which ones you need. Existing files are kept.",
  args: [new Argument('<dir>', 'directory to write to; created if missing')],
  options: [
    new Option('--host <names>', 'names and addresses of gateways and hubs')
      .argParser(listOf(HOSTS, host))
      .default(HOSTS, HOSTS.join()),
    new Option('--agent <ids>', 'one certificate for each agent')
      .argParser(listOf(AGENTS, subject))
      .default(AGENTS, AGENTS.join()),
    new Option('--caller <name>', 'caller to make a certificate for').argParser(subject).default('kube-apiserver'),
    new Option('--operator <name>', 'operator of the admin ports to make a certificate for')
      .argParser(subject)
      .default('operator'),
    new Option('--days <count>', 'how long they are valid; CAs ten times as long').argParser(count).default(365),
    new Option('--force', 'overwrite existing files'),
  ],
  examples: [
    { line: 'certs pki', does: 'a plane on this machine' },
    {
      line: 'certs pki --host hub.example.com,10.0.0.5 --agent node-a,node-b',
      does: 'reached from elsewhere, by two agents',
    },
  ],
  async run({ args: [dir = ''], options, output }: Call<Options>) {
    const made = await makeCertificates({ dir, ...options, agents: options.agent, hosts: options.host });
    output.show(made, () => certsText(made, output.style));
    return EXIT.good;
  },
});

export function certsText({ dir, files, flags }: Made, style: Style): string {
  const width = Math.max(...files.map(({ path }) => path.length));
  const lines = files.map(({ path, is }) => `  ${path.padEnd(width)}  ${is}\n`);
  const uses = flags.map(({ program, flags: given }) => `\n${style.strong(program)}\n  ${flagLines(given)}\n`);
  return `Wrote to ${dir}:\n${lines.join('')}\nFlags that use them:\n${uses.join('')}`;
}

/** Formats one flag per line, with shell continuations. A file that is its own argument stays on the line of its flag. */
function flagLines(given: readonly string[]): string {
  return given.reduce((lines, argument) => `${lines} ${argument.startsWith('--') ? '\\\n  ' : ''}${argument}`);
}
