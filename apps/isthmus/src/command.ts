import type { Argument, Option } from 'commander';
import type { ExitStatus } from './exit.ts';
import type { Output } from './output/output.ts';
import type { Plane } from './plane/plane.ts';
import type { Terminal } from './terminal.ts';

/** What every command takes. */
export interface CommonOptions {
  readonly address: readonly string[];
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  /** Empty for all of them, or for a gateway's own. */
  readonly tenant: string;
  /** Milliseconds. */
  readonly timeout: number;
}

/** One run of a command. */
export interface Call<O = object> {
  readonly args: readonly (string | undefined)[];
  readonly options: O & CommonOptions;
  readonly terminal: Terminal;
  readonly output: Output;
  /** Meets the members of the plane. They are left when the command ends. */
  plane(): Promise<Plane>;
}

export interface Example {
  /** As one types it, without `isthmus`. */
  readonly line: string;
  readonly does: string;
}

export interface Definition<O = object> {
  readonly name: string;
  /** One line for the list of commands. */
  readonly summary: string;
  /** What there is to know beside; ends --help's text above the options. */
  readonly details?: string;
  readonly args?: readonly Argument[];
  readonly options?: readonly Option[];
  readonly examples: readonly Example[];
  run(call: Call<O>): Promise<ExitStatus>;
}

/** A command with its own options, among commands with others: only `run` knows them. */
export function command<O extends object>(definition: Definition<O>): Definition {
  return definition as unknown as Definition;
}
