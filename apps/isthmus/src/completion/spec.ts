import type { Argument, Command, Option } from 'commander';

/** Names of a plane that completion asks for. */
export const NAME_KINDS = ['members', 'gateways', 'hubs', 'agents', 'tenants'] as const;
export type NameKind = (typeof NAME_KINDS)[number];

/** Which names an option or an argument takes. */
const BY_OPTION: Readonly<Record<string, NameKind>> = {
  '--member <id>': 'members',
  '--gateway <id>': 'gateways',
  '--hub <id>': 'hubs',
  '--agent <id>': 'agents',
  '--tenant <name>': 'tenants',
};
const BY_ARGUMENT: Readonly<Record<string, NameKind>> = {
  'drain hub': 'hubs',
  'quarantine agent': 'agents',
  'kick id': 'agents',
};

export function namesOfOption({ flags }: Option): NameKind | undefined {
  return BY_OPTION[flags];
}

export function namesOfArgument(command: Command, argument: Argument): NameKind | undefined {
  return BY_ARGUMENT[`${command.name()} ${argument.name()}`];
}

/** Options of every command that say which plane to ask. A script passes them on. */
export const ASKING = ['-a', '--address', '--ca', '--cert', '--key', '--tenant'] as const;

/** A TAB must not hang: for a plane that is away there are no names to offer. */
export const NAMES_TIMEOUT = '--timeout 1s';

/** Returns the written forms of an option, `--name` and `-n`. */
export function written({ long, short }: Option): string[] {
  return [long, short].filter((name) => name !== undefined && name !== null);
}

/** The options that every command has. */
export function globalOptions(root: Command): readonly Option[] {
  return root.options.filter(({ long }) => long !== '--version');
}

export function optionsOf(command: Command, root: Command): readonly Option[] {
  return [...command.options, ...globalOptions(root)];
}

/** Returns the words that a command's arguments accept. */
export function choicesOf({ registeredArguments }: Command): string[] {
  return registeredArguments.flatMap(({ argChoices }: Argument) => argChoices ?? []);
}

export function takesValue({ required, optional }: Option): boolean {
  return required || optional;
}

export function takesFile({ flags }: Option): boolean {
  return /<file>|<path>/.test(flags);
}

/** Escapes text for single quotes of a shell. */
export function quoted(text: string): string {
  return text.replaceAll("'", "'\\''");
}
