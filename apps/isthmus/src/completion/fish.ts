import type { Command, Option } from 'commander';
import {
  ASKING,
  choicesOf,
  globalOptions,
  NAMES_TIMEOUT,
  namesOfArgument,
  namesOfOption,
  quoted,
  takesFile,
  takesValue,
} from './spec.ts';

export function fish(root: Command): string {
  const names = root.commands.map((command) => command.name());
  const lines = root.commands.flatMap((command) => {
    const name = command.name();
    const here = `-n '__fish_seen_subcommand_from ${name}'`;
    const kinds = command.registeredArguments.flatMap((argument) => namesOfArgument(command, argument) ?? []);
    return [
      `complete -c isthmus -f -n __isthmus_needs_command -a ${name} -d '${quoted(command.summary())}'`,
      ...choicesOf(command).map((choice) => `complete -c isthmus -f ${here} -a ${choice}`),
      ...kinds.map((kind) => `complete -c isthmus -f ${here} -a '(__isthmus_names ${kind})'`),
      ...command.options.map((option) => `complete -c isthmus ${here} ${fishOption(option)}`),
    ];
  });
  const common = globalOptions(root).map((option) => `complete -c isthmus ${fishOption(option)}`);
  return `# Completion of isthmus for fish; made by: isthmus completion fish
function __isthmus_names
    set -l typed (commandline -opc)
    set -l asked
    for place in (seq 2 (count $typed))
        switch $typed[$place]
            case ${ASKING.join(' ')}
                set -a asked $typed[$place] $typed[(math $place + 1)]
            case ${ASKING.filter((name) => name.startsWith('--'))
              .map((name) => `'${name}=*'`)
              .join(' ')}
                set -a asked $typed[$place]
        end
    end
    $typed[1] completion --names $argv[1] ${NAMES_TIMEOUT} $asked 2>/dev/null </dev/null
end
# The value of an option is a word too, so fish's own test for a missing command fails behind --address.
function __isthmus_needs_command
    not __fish_seen_subcommand_from ${names.join(' ')}
end
${[...common, ...lines].join('\n')}
`;
}

function fishOption(option: Option): string {
  const { long, short, argChoices, description } = option;
  const names = `${short ? `-s ${short.slice(1)} ` : ''}-l ${long?.slice(2)}`;
  return `${names}${valueText(option, argChoices)} -d '${quoted(description)}'`;
}

function valueText(option: Option, choices: readonly string[] | undefined): string {
  const kind = namesOfOption(option);
  if (kind) return ` -x -a '(__isthmus_names ${kind})'`;
  if (choices) return ` -x -a '${choices.join(' ')}'`;
  if (!takesValue(option)) return '';
  return takesFile(option) ? ' -r' : ' -x';
}
