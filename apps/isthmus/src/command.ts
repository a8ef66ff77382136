import { readDuration } from '@isthmus/flags';
import { socketPathOf } from '@isthmus/runtime';
import { formatDestination, parseDestination } from '@isthmus/tunnel';
import { Argument, InvalidArgumentError, Option } from 'commander';
import { ISTHMUS } from './defaults.ts';
import { age, type ExitStatus, FORMATS, type Output } from './output.ts';
import type { Plane } from './plane/plane.ts';
import type { Terminal } from './terminal.ts';

/** Options of every command. */
export interface CommonOptions {
  readonly address: readonly string[];
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  /** Empty for all tenants, or for a gateway's own. */
  readonly tenant: string;
  /** In milliseconds. */
  readonly timeout: number;
  /** Of `isthmus config`; for commands of callers, of a kubeconfig. */
  readonly context?: string;
}

/** One run of a command. */
export interface Call<O = object> {
  readonly args: readonly (string | undefined)[];
  readonly options: O & CommonOptions;
  readonly terminal: Terminal;
  readonly output: Output;
  /** Whether the command line itself has an option (`--ca`), and not only the environment or a context. */
  readonly given: (flag: string) => boolean;
  /** Connects to the members of the plane. The connections close when the command ends. */
  plane(): Promise<Plane>;
}

export interface Definition<O = object> {
  readonly name: string;
  /** One line for the list of commands. */
  readonly summary: string;
  /** More about the command. Shown in --help above the options. */
  readonly details?: string;
  readonly args?: readonly Argument[];
  readonly options?: readonly Option[];
  /** What each line does, as typed without `isthmus`. */
  readonly examples: Readonly<Record<string, string>>;
  /** Whether it prints Kubernetes objects with `-o kubernetes`. */
  readonly printsObjects?: true;
  /** Whether it prints a list, with `-o name`. */
  readonly lists?: true;
  /** Whether it asks no member of a plane, so that the operator's context does not count. */
  asksNobody?(args: Call['args'], options: O): boolean;
  run(call: Call<O>): Promise<ExitStatus>;
}

/** Lets a command with its own options stand among others. Only `run` knows these options. */
export function command<O extends object>(definition: Definition<O>): Definition {
  return definition as unknown as Definition;
}

/** Runs `read`. Converts its errors so that commander reports them with the name of the option. */
function valid<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message);
  }
}

/** Parses Go's duration syntax, as the programs' flags do. Returns milliseconds. */
export function duration(text: string): number {
  const ms = valid(() => readDuration(text));
  if (ms <= 0) throw new InvalidArgumentError('want a duration above 0, such as 5s');
  return ms;
}

function deadline(text: string): number {
  const ms = duration(text);
  if (ms > ISTHMUS.longestAnswerMs) throw new InvalidArgumentError('want 2m at most');
  return ms;
}

/** Parses `host:port`, with IPv6 in brackets. */
export function hostPort(text: string): string {
  return valid(() => formatDestination(parseDestination(text)));
}

/** Parses the place of an admin port: `host:port`, or `unix:/path`. */
export function adminPlace(text: string): string {
  const path = socketPathOf(text);
  return path === undefined ? hostPort(text) : `unix:${path}`;
}

/**
 * An option with a duration.
 * @param initial its default in milliseconds; unset for none
 * @param shown what help shows as the default
 */
export function durationOption(flags: string, about: string, initial?: number, shown?: string): Option {
  const option = new Option(flags, about).argParser(duration);
  return initial === undefined ? option : option.default(initial, shown ?? age(initial));
}

/**
 * An option with a list: with commas, or by repeating it. What is given replaces the default.
 * @param read checks one of the list
 * @param shown what help shows as the default
 */
export function listOption(
  flags: string,
  about: string,
  initial: readonly string[],
  { read = (text: string) => text, shown = initial.join() } = {},
): Option {
  return new Option(flags, about)
    .default(initial, shown)
    .argParser((text: string, before: readonly string[] | undefined) => [
      ...(before === undefined || before === initial ? [] : before),
      ...text.split(',').map((each) => read(each.trim())),
    ]);
}

export function count(text: string): number {
  if (!/^[1-9]\d{0,5}$/.test(text)) throw new InvalidArgumentError('want a number from 1 to 999999');
  return Number(text);
}

/** Options of every command: whom to ask, how, and in which format to print. */
export function commonOptions(): Option[] {
  return [
    listOption(
      '-a, --address <host:port>',
      'admin port of any gateway or hub, or unix:/path for its unix socket; the others are found through it. Repeat it to name spares',
      ['127.0.0.1:8095'],
      { read: adminPlace },
    ).env('ISTHMUS_ADDRESS'),
    new Option(
      '--ca <file>',
      'CA certificates of the admin ports (PEM), which turns on TLS; for login, of the gateway',
    ).env('ISTHMUS_CA'),
    new Option('--cert <file>', 'client certificate for them (PEM)').env('ISTHMUS_CERT'),
    new Option('--key <file>', 'private key of --cert (PEM)').env('ISTHMUS_KEY'),
    new Option('--tenant <name>', "only this tenant; a dial uses it instead of the gateway's own").default('', 'all'),
    new Option(
      '--context <name>',
      'context that gives the options above, instead of the current one of isthmus config; for why and nc, a context of the kubeconfig',
    ),
    durationOption('--timeout <duration>', 'how long each member may take to answer', ISTHMUS.answerMs).argParser(
      deadline,
    ),
    new Option('-o, --output <format>', 'table for people, json for programs; for certs also kubernetes')
      .choices(FORMATS)
      .default('table'),
  ];
}

export function destinationArgument(): Argument {
  return new Argument('<host:port>', 'destination to dial; IPv6 in brackets').argParser(hostPort);
}
