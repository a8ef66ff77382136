import { socketPathOf } from '@isthmus/admin/place';
import { FlagError, readDuration } from '@isthmus/flags';
import { formatDestination, parseDestination } from '@isthmus/tunnel';
import { Argument, type Command, InvalidArgumentError, Option } from 'commander';
import { type ExitStatus, FORMATS, type Output } from './output.ts';
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
}

/** One run of a command. */
export interface Call<O = object> {
  readonly args: readonly (string | undefined)[];
  readonly options: O & CommonOptions;
  readonly terminal: Terminal;
  readonly output: Output;
  /** Connects to the members of the plane. The connections close when the command ends. */
  plane(): Promise<Plane>;
  /** All commands with their options, as commander knows them. */
  commands(): Command;
}

interface Example {
  /** As typed, without `isthmus`. */
  readonly line: string;
  readonly does: string;
}

export interface Definition<O = object> {
  readonly name: string;
  /** One line for the list of commands. */
  readonly summary: string;
  /** More about the command. Shown in --help above the options. */
  readonly details?: string;
  readonly args?: readonly Argument[];
  readonly options?: readonly Option[];
  readonly examples: readonly Example[];
  /** Whether it prints Kubernetes objects with `-o kubernetes`. */
  readonly printsObjects?: true;
  run(call: Call<O>): Promise<ExitStatus>;
}

/** Lets a command with its own options stand among others. Only `run` knows these options. */
export function command<O extends object>(definition: Definition<O>): Definition {
  return definition as unknown as Definition;
}

/** A longer wait means that something hangs: by then a person has given up, and so should a script. */
const LONGEST_MS = 600_000;

/** Runs `read`. Converts its errors so that commander reports them with the name of the option. */
function valid<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof FlagError || error instanceof InvalidArgumentError) throw error;
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
  if (ms > LONGEST_MS) throw new InvalidArgumentError('want 10m at most');
  return ms;
}

/** Parses `host:port`, with IPv6 in brackets. */
export function hostPort(text: string): string {
  return valid(() => formatDestination(parseDestination(text)));
}

/** Parses the place of an admin port: `host:port`, or `unix:/path`. */
function adminPlace(text: string): string {
  const path = socketPathOf(text);
  return path === undefined ? hostPort(text) : `unix:${path}`;
}

function added(text: string, before: readonly string[] | undefined, fromDefault: readonly string[]): string[] {
  const known = before === undefined || before === fromDefault ? [] : before;
  return [...known, ...text.split(',').map((each) => adminPlace(each.trim()))];
}

export function count(text: string): number {
  if (!/^[1-9]\d{0,5}$/.test(text)) throw new InvalidArgumentError('want a number from 1 to 999999');
  return Number(text);
}

const HERE = ['127.0.0.1:8095'];

/** Options of every command: whom to ask, how, and in which format to print. */
export function commonOptions(): Option[] {
  return [
    new Option(
      '-a, --address <host:port>',
      'admin port of any gateway or hub, or unix:/path for its unix socket; the others are found through it. Repeat it to name spares',
    )
      .env('ISTHMUS_ADDRESS')
      .default(HERE, HERE.join())
      .argParser((text: string, before: readonly string[] | undefined) => added(text, before, HERE)),
    new Option('--ca <file>', 'CA certificates of the admin ports (PEM); turns on TLS').env('ISTHMUS_CA'),
    new Option('--cert <file>', 'client certificate for them (PEM)').env('ISTHMUS_CERT'),
    new Option('--key <file>', 'private key of --cert (PEM)').env('ISTHMUS_KEY'),
    new Option('--tenant <name>', "only this tenant; a dial uses it instead of the gateway's own").default('', 'all'),
    new Option('--timeout <duration>', 'how long each member may take to answer')
      .default(5000, '5s')
      .argParser(deadline),
    new Option('-o, --output <format>', 'table for people, json for programs; for certs also kubernetes')
      .choices(FORMATS)
      .default('table'),
  ];
}

export function destinationArgument(): Argument {
  return new Argument('<host:port>', 'destination to dial; IPv6 in brackets').argParser(hostPort);
}
