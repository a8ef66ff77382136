import { printable } from '@isthmus/runtime';
import { VERSION } from '@isthmus/service';
import { inWords } from '@isthmus/tunnel';
import { Command, CommanderError, Option } from 'commander';
import { type Call, type CommonOptions, commonOptions, type Definition } from './command.ts';
import { agents, kick, quarantine } from './commands/agents.ts';
import { certs } from './commands/certs.ts';
import { check } from './commands/check.ts';
import { config, logLevel } from './commands/config.ts';
import { cuts } from './commands/cuts.ts';
import { diag } from './commands/diag.ts';
import { dial } from './commands/dial.ts';
import { events } from './commands/events.ts';
import { explain } from './commands/explain.ts';
import { hold } from './commands/hold.ts';
import { drain, hubs } from './commands/hubs.ts';
import { credential, login } from './commands/login.ts';
import { nc } from './commands/nc.ts';
import { status } from './commands/status.ts';
import { tenants } from './commands/tenants.ts';
import { tunnels } from './commands/tunnels.ts';
import { version } from './commands/version.ts';
import { watch } from './commands/watch.ts';
import { why } from './commands/why.ts';
import { type SourceOf, withContext } from './contexts.ts';
import { EXIT, type ExitStatus, Failure, type Format, Output, usage, writerOf } from './output.ts';
import { Plane, readTls } from './plane/plane.ts';
import { folded } from './table.ts';
import { cleanLines, type Terminal } from './terminal.ts';

/** By the headings of --help. */
export const GROUPS: readonly (readonly [heading: string, commands: readonly Definition[]])[] = [
  ['See what is there:', [status, tenants, agents, hubs, tunnels, cuts, events, watch]],
  ['Find out why:', [check, explain, dial, diag]],
  ['Change a running plane:', [drain, kick, quarantine, config, logLevel]],
  ['Reach a cluster as a caller:', [login, why, nc, credential]],
  ['Set up:', [certs, hold, version]],
];

export const COMMANDS: readonly Definition[] = GROUPS.flatMap(([, commands]) => commands);

const ABOUT = `Shows and operates an Isthmus plane. It asks one gateway or hub, which asks the other members.`;

export const EXIT_STATUS = `
Exit status:
  0  done, and all is well
  1  something is wrong: a check or a dial failed
  2  wrong usage
  3  some members, or all, did not answer
  4  status: all works, and something needs attention (somebody is refused, dials wait, a certificate or limit is near its end)
  5  isthmus itself failed: its output could not be written, or it has a bug
`;

/** A parsed command line. */
export interface Interpreted {
  readonly definition: Definition;
  readonly args: Call['args'];
  readonly options: CommonOptions & { readonly output: Format };
  readonly sourceOf: SourceOf;
}

/** Parses a command line. Returns only a status if everything has been printed already. */
export function interpret(terminal: Terminal): Interpreted | ExitStatus {
  let chosen: Interpreted | undefined;
  const root = commandTree((definition, made) => {
    const sourceOf: SourceOf = (option) => made.getOptionValueSourceWithGlobals(option);
    chosen = { definition, args: made.processedArgs, options: made.optsWithGlobals(), sourceOf };
  }, terminal);
  try {
    root.parse([...terminal.args], { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    return error.exitCode === 0 ? EXIT.good : EXIT.usage;
  }
  return chosen ?? EXIT.usage;
}

type Choose = (definition: Definition, made: Command) => void;

/** Returns the commands as commander knows them. */
function commandTree(choose: Choose = () => {}, terminal?: Terminal): Command {
  const root = new Command('isthmus').description(ABOUT).version(VERSION).exitOverride();
  if (terminal) {
    const widthOfHelp = () => Math.min(terminal.columns(), 120);
    // Commander leaves narrower texts as they are.
    root.configureHelp({ minWidthToWrap: 24 });
    root.configureOutput({
      writeOut: (text) => terminal.out(folded(text, { columns: widthOfHelp(), wide: false })),
      // It repeats what was typed, or pasted.
      writeErr: (text) => terminal.err(cleanLines(text)),
      getOutHelpWidth: widthOfHelp,
      getOutHasColors: () => terminal.colours,
      outputError: (text, write) => write(text.replace(/^error: /, 'isthmus: ')),
    });
  }
  root.addHelpText('after', EXIT_STATUS);
  root.optionsGroup('Options of every command:');
  for (const option of commonOptions()) root.addOption(option);
  for (const [heading, commands] of GROUPS)
    for (const definition of commands) root.addCommand(commandOf(definition, root, choose).helpGroup(heading));
  root.on('beforeHelp', () => refuseUnknown(root));
  return root;
}

/** Commander would answer `isthmus foo --help` with its own help, as if all were well. */
function refuseUnknown(root: Command): void {
  const [named = 'help'] = root.args;
  const known = root.commands.some((each) => each.name() === named || each.aliases().includes(named));
  // The next word that commander reads is then the unknown one, for which it has a hint.
  if (named !== 'help' && !named.startsWith('-') && !known) root.parse([named], { from: 'user' });
}

function commandOf(definition: Definition, root: Command, choose: Choose): Command {
  const { name, summary, details, args = [], options = [], examples } = definition;
  const made = new Command(name).copyInheritedSettings(root).summary(summary);
  made.description(details === undefined ? `${summary}.` : `${summary}.\n${details}`);
  for (const argument of args) made.addArgument(argument);
  for (const option of options) made.addOption(option);
  const width = Math.max(...Object.keys(examples).map((line) => line.length));
  const lines = Object.entries(examples).map(([line, does]) => `  isthmus ${line.padEnd(width)}  # ${does}`);
  made.addHelpText(
    'after',
    `\nExamples:\n${lines.join('\n')}\n\nOptions of every command (--address, --output and others): isthmus --help\n`,
  );
  made.action(() => choose(definition, made));
  return made;
}

/** Runs the program once. Returns its exit status. @throws what is a bug */
export async function run(terminal: Terminal): Promise<ExitStatus> {
  const interpreted = interpret(terminal);
  if (typeof interpreted === 'number') return interpreted;
  const { definition, args, sourceOf } = interpreted;
  let met: Promise<Plane> | undefined;
  try {
    const options = definition.asksNobody?.(args, interpreted.options)
      ? interpreted.options
      : await withContext(interpreted.options, sourceOf, terminal);
    const meet = async () => {
      const { address: addresses, timeout: timeoutMs } = options;
      return await Plane.meet({ addresses, tls: await readTls(options), timeoutMs, signal: terminal.interrupted });
    };
    const plane = () => {
      met ??= meet().catch((error) => {
        // A later question tries again.
        met = undefined;
        throw error;
      });
      return met;
    };
    const given = (flag: string) => sourceOf(new Option(flag).attributeName()) === 'cli';
    const output = new Output(terminal, options.output, await writerOf(options.output));
    const call: Call = { args, options, terminal, output, given, plane };
    if (output.format === 'kubernetes' && !definition.printsObjects)
      throw usage(`${definition.name} prints no Kubernetes objects: use -o json`);
    if (output.format === 'name' && !definition.lists) throw usage(`${definition.name} prints no list: use -o json`);
    return await definition.run(call);
  } catch (error) {
    if (terminal.interrupted.aborted) return EXIT.unasked;
    if (!(error instanceof Failure)) throw error;
    terminal.err(`isthmus: ${printable(inWords(error))}\n`);
    return error.status;
  } finally {
    (await met?.catch(() => undefined))?.[Symbol.dispose]();
  }
}
