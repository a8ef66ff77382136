import type { Argument, Command, Option } from 'commander';

export type Shell = 'bash' | 'zsh' | 'fish';

/** The completion script of each shell, generated from the parsed commands. */
export const SHELLS: Readonly<Record<Shell, (root: Command) => string>> = { bash, zsh, fish };

/** Returns the written forms of an option, `--name` and `-n`. */
function written({ long, short }: Option): string[] {
  return [long, short].filter((name) => name !== undefined && name !== null);
}

function optionsOf(command: Command, root: Command): readonly Option[] {
  return [...command.options, ...root.options.filter(({ long }) => long !== '--version')];
}

/** Returns the words that a command's arguments accept. */
function choicesOf({ registeredArguments }: Command): string[] {
  return registeredArguments.flatMap(({ argChoices }: Argument) => argChoices ?? []);
}

function bash(root: Command): string {
  const names = root.commands.map((command) => command.name());
  const cases = root.commands.map((command) => {
    const words = [...choicesOf(command), ...optionsOf(command, root).flatMap(written), '--help'];
    return `    ${command.name()}) words='${words.join(' ')}' ;;`;
  });
  const valued = [...new Set(root.commands.flatMap((command) => optionsOf(command, root)))].filter(takesChoice);
  const values = valued.map((option) => `    ${written(option).join('|')}) words='${option.argChoices?.join(' ')}' ;;`);
  return `# Completion of isthmus for bash; made by: isthmus completion bash
_isthmus() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD-1]} words='${names.join(' ')} --help' word
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case $word in
${cases.map((line) => `  ${line}`).join('\n')}
    esac
  done
  case $previous in
${values.join('\n')}
    --ca|--cert|--key|--*-cert|--*-key|certs|diag) COMPREPLY=($(compgen -f -- "$current")); return ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o filenames -F _isthmus isthmus
`;
}

function takesChoice({ argChoices }: Option): boolean {
  return argChoices !== undefined;
}

/** Escapes text for single quotes of a shell. `zshText` also escapes zsh's brackets and colons. */
function quoted(text: string): string {
  return text.replaceAll("'", "'\\''");
}

function zshText(text: string): string {
  return quoted(text.replaceAll(/[[\]:]/g, '\\$&'));
}

function zsh(root: Command): string {
  const commands = root.commands.map((command) => `    '${command.name()}:${zshText(command.summary())}'`);
  const cases = root.commands.map((command) => {
    const specs = [...optionsOf(command, root).flatMap(zshOption), ...zshArguments(command)];
    return `      ${command.name()}) _arguments -S ${specs.join(' ')} ;;`;
  });
  return `#compdef isthmus
# Completion of isthmus for zsh; made by: isthmus completion zsh
_isthmus() {
  local state line
  local -a commands=(
${commands.join('\n')}
  )
  _arguments -C '1: :->command' '*:: :->rest'
  case $state in
    command) _describe command commands ;;
    rest) case $line[1] in
${cases.join('\n')}
    esac ;;
  esac
}
# Found in $fpath, this file is the function's first call; sourced, it is not.
if [[ $funcstack[1] == _isthmus ]]; then _isthmus "$@"; else compdef _isthmus isthmus; fi
`;
}

function zshOption(option: Option): string[] {
  const value = option.required || option.optional ? `:value:${zshValues(option)}` : '';
  return written(option).map((name) => `'*${name}[${zshText(option.description)}]${value}'`);
}

function zshValues({ argChoices, flags }: Option): string {
  if (argChoices) return `(${argChoices.join(' ')})`;
  return /<file>/.test(flags) ? '_files' : ' ';
}

function zshArguments({ registeredArguments }: Command): string[] {
  return registeredArguments.map((argument, index) => {
    const values = argument.argChoices
      ? `(${argument.argChoices.join(' ')})`
      : argument.name() === 'dir'
        ? '_files -/'
        : argument.name() === 'file'
          ? '_files'
          : ' ';
    const place = argument.variadic ? '*' : String(index + 1);
    return `'${place}:${zshText(argument.name())}:${values}'`;
  });
}

function fish(root: Command): string {
  const lines = root.commands.flatMap((command) => {
    const name = command.name();
    const here = `-n '__fish_seen_subcommand_from ${name}'`;
    return [
      `complete -c isthmus -f -n __fish_use_subcommand -a ${name} -d '${quoted(command.summary())}'`,
      ...choicesOf(command).map((choice) => `complete -c isthmus -f ${here} -a ${choice}`),
      ...command.options.map((option) => `complete -c isthmus ${here} ${fishOption(option)}`),
    ];
  });
  const common = root.options.filter(({ long }) => long !== '--version');
  return `# Completion of isthmus for fish; made by: isthmus completion fish
${[...common.map((option) => `complete -c isthmus ${fishOption(option)}`), ...lines].join('\n')}
`;
}

function fishOption(option: Option): string {
  const { long, short, required, optional, argChoices, description, flags } = option;
  const names = `${short ? `-s ${short.slice(1)} ` : ''}-l ${long?.slice(2)}`;
  const files = /<file>/.test(flags) ? '-r' : '-x';
  const value = argChoices ? ` -x -a '${argChoices.join(' ')}'` : required || optional ? ` ${files}` : '';
  return `${names}${value} -d '${quoted(description)}'`;
}
