import type { Argument, Option } from 'commander';
import type { ExitStatus } from './exit.ts';
import type { Output } from './output/output.ts';
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
}

export interface Example {
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
