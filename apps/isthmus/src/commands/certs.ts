import { isIP, isIPv6 } from 'node:net';
import { Argument, InvalidArgumentError, Option } from 'commander';
import { type Call, command, count, listOption } from '../command.ts';
import { ISTHMUS } from '../defaults.ts';
import type { Style } from '../output.ts';
import { EXIT, type ExitStatus, usage } from '../output.ts';
import { table } from '../table.ts';
import { kubernetesText, RECIPE_NAMES, recipeOf } from './certs-kubernetes.ts';
import { issueCertificates, type Made, makeCertificates, type Parties } from './certs-make.ts';

interface Options extends Parties {
  readonly recipe?: string;
  readonly force?: true;
}

const HOSTS = ['localhost', '127.0.0.1', '::1'];

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

export const certs = command({
  name: 'certs',
  summary: 'Make certificates for a new plane',
  details:
    "Makes four CAs, so that an agent's certificate does not work as a caller's nor a caller's as a hub's, and each party's certificate. In production, issue these certificates with your own CA; the files show which ones you need. Existing files are kept. Prints commands to paste that use the files.",
  args: [new Argument('[dir]', 'directory to write to; created if missing. May be left out with -o kubernetes')],
  printsObjects: true,
  options: [
    listOption('--host <names>', 'names and addresses of gateways and hubs', HOSTS, { read: host }),
    listOption('--agent <ids>', 'one certificate for each agent', ['agent'], { read: subject }),
    new Option('--caller <name>', 'caller to make a certificate for').argParser(subject).default('kube-apiserver'),
    new Option('--operator <name>', 'operator of the admin ports to make a certificate for')
      .argParser(subject)
      .default('operator'),
    new Option('--days <count>', 'how long they are valid; CAs ten times as long')
      .argParser(count)
      .default(ISTHMUS.certsDays),
    new Option('--recipe <name>', 'with -o kubernetes: the manifests whose secrets to print (default: plane)').choices(
      RECIPE_NAMES,
    ),
    new Option('--force', 'overwrite existing files'),
  ],
  examples: {
    'certs pki': 'a plane on this machine',
    'certs pki --host hub.example.com,10.0.0.5 --agent node-a,node-b': 'reached from elsewhere, by two agents',
    'certs pki --host hubs.example.com -o kubernetes | kubectl apply -f -': 'the secrets of k8s/base/plane too',
  },
  asksNobody: () => true,
  async run(call: Call<Options>) {
    const { args, options, output, terminal } = call;
    if (output.format === 'kubernetes') return await printObjects(call);
    if (options.recipe !== undefined) throw usage('--recipe is for -o kubernetes');
    const [dir] = args;
    if (dir === undefined) throw usage('name the directory to write to, or print secrets with -o kubernetes');
    const { texts, ...made } = await makeCertificates(dir, options);
    const places = { host: authority(options.host[0] ?? 'localhost'), npx: terminal.env.npm_command === 'exec' };
    output.paste(made, (_, style) => certsText(made, places, style));
    return EXIT.good;
  },
});

/** Prints a recipe's secrets. Writes the files too, if a directory is named: a holder of the CAs' keys can issue more. */
async function printObjects({ args: [dir], options, output, terminal }: Call<Options>): Promise<ExitStatus> {
  const { caller, operator, tenant, host: given, recipe: name = 'plane' } = options;
  const recipe = recipeOf(name);
  const hosts = [...recipe.hosts, ...(given === HOSTS ? [] : given)];
  if (hosts.length === 0)
    throw usage(`--recipe ${name} needs --host: the names and addresses that its agents and API server dial`);
  if (name === 'tenant' && tenant === '') throw usage("--recipe tenant needs --tenant NAME, as in the tenant's file");
  const parties = { ...options, host: hosts };
  const texts = dir === undefined ? await issueCertificates(parties) : (await makeCertificates(dir, parties)).texts;
  terminal.out(kubernetesText(recipe, texts, { caller, operator, tenant }));
  if (dir === undefined) output.remark("the CAs' keys were not kept: name a directory to keep them");
  return EXIT.good;
}

interface Places {
  /** Where gateways and hubs are, in the commands. */
  readonly host: string;
  /** Whether programs are started through npx here. */
  readonly npx: boolean;
}

/** What was made, then commands to paste into a shell: all of them, or one block. */
function certsText({ dir, files, flags }: Made, places: Places, style: Style): string {
  const rows = files.map(({ path, key, is }) => [path, key, is]);
  const columns = ['certificate', { name: 'its key', drop: 1 }, { name: 'what it is', least: 20 }] as const;
  const blocks = flags.map((each) => `\n${block(each, places, style)}\n`);
  return `Wrote to ${dir}:\n\n${table(columns, rows, style)}\nCommands that use them:\n${blocks.join('')}`;
}

/** One command, with a comment above it and one flag per line. */
function block({ program: named, flags }: Made['flags'][number], places: Places, style: Style): string {
  const [, program = named, whose = ''] = /^(\S+) \((.*)\)$/.exec(named) ?? [];
  const { about, before = [], after = [] } = COMMANDS[program]?.(places.host) ?? { about: '' };
  const start = [places.npx && program !== 'curl' ? `npx ${program}` : program, ...before].join(' ');
  const lines = [start, ...flagLines(flags), ...after];
  return `${style.faint(`# ${whose === '' ? about : `${about} ${whose}`}`)}\n${lines.join(' \\\n  ')}`;
}

interface Command {
  readonly about: string;
  /** Words before and after the flags. */
  readonly before?: readonly string[];
  readonly after?: readonly string[];
}

const COMMANDS: Readonly<Record<string, (host: string) => Command>> = {
  'proxy-server': () => ({ about: 'gateway and hub in one process' }),
  'frontend-gw': () => ({ about: 'or a gateway alone, which also needs --redis-url' }),
  'backend-hub': () => ({ about: 'and a hub alone, which also needs --redis-url and --advertise-address' }),
  'proxy-agent': (host) => ({
    about: 'the agent',
    after: [quoted(`--proxy-server-host=${host.replaceAll(/[[\]]/g, '')}`)],
  }),
  // `-p` makes curl use CONNECT for a plain URL, and `--noproxy ''` matters where NO_PROXY lists the gateway.
  curl: (host) => ({
    about: "once they run: asks the server's health port, through the agent, as",
    before: ['-sSp', '--noproxy', "''"],
    after: [`--proxy ${quoted(`https://${host}:8090`)}`, quoted(`http://${host}:8092/readyz`)],
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
