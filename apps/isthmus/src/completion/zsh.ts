import type { Command, Option } from 'commander';
import {
  ASKING,
  globalOptions,
  NAMES_TIMEOUT,
  namesOfArgument,
  namesOfOption,
  optionsOf,
  quoted,
  takesFile,
  takesValue,
  written,
} from './spec.ts';

export function zsh(root: Command): string {
  const commands = root.commands.map((command) => `    '${command.name()}:${zshText(command.summary())}'`);
  const globals = globalOptions(root).flatMap(zshOption);
  const cases = root.commands.map((command) => {
    const specs = [...optionsOf(command, root).flatMap(zshOption), ...zshArguments(command)];
    return `      ${command.name()}) _arguments -S ${specs.join(' ')} ;;`;
  });
  return `#compdef isthmus
# Completion of isthmus for zsh; made by: isthmus completion zsh
_isthmus_names() {
  local -a typed=(\${(Q)\${(z)LBUFFER}}) asked names
  local place
  for ((place = 2; place <= $#typed; place++)); do
    case $typed[place] in
      ${ASKING.join('|')}) asked+=("$typed[place]" "$typed[place+1]") ;;
      ${ASKING.filter((name) => name.startsWith('--'))
        .map((name) => `${name}=*`)
        .join('|')}) asked+=("$typed[place]") ;;
    esac
  done
  names=(\${(f)"$($typed[1] completion --names $1 ${NAMES_TIMEOUT} $asked 2>/dev/null </dev/null)"})
  compadd -a names
}
_isthmus() {
  local state line
  local -a commands=(
${commands.join('\n')}
  )
  _arguments -C ${globals.join(' ')} '1: :->command' '*:: :->rest'
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

/** Escapes text for a specification of _arguments: also brackets and colons. */
function zshText(text: string): string {
  return quoted(text.replaceAll(/[[\]:]/g, '\\$&'));
}

function zshOption(option: Option): string[] {
  const value = takesValue(option) ? `:value:${zshValues(option)}` : '';
  return written(option).map((name) => `'*${name}[${zshText(option.description)}]${value}'`);
}

function zshValues(option: Option): string {
  const kind = namesOfOption(option);
  // The space keeps _arguments from adding words of its own.
  if (kind) return ` _isthmus_names ${kind}`;
  if (option.argChoices) return `(${option.argChoices.join(' ')})`;
  return takesFile(option) ? '_files' : ' ';
}

function zshArguments(command: Command): string[] {
  return command.registeredArguments.map((argument, index) => {
    const kind = namesOfArgument(command, argument);
    const files: Readonly<Record<string, string>> = { dir: '_files -/', file: '_files' };
    const values = argument.argChoices ? `(${argument.argChoices.join(' ')})` : (files[argument.name()] ?? ' ');
    const place = argument.variadic ? '*' : String(index + 1);
    return `'${place}:${zshText(argument.name())}:${kind ? ` _isthmus_names ${kind}` : values}'`;
  });
}
