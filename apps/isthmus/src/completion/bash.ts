import type { Command, Option } from 'commander';
import {
  ASKING,
  choicesOf,
  globalOptions,
  NAMES_TIMEOUT,
  namesOfArgument,
  namesOfOption,
  optionsOf,
  takesFile,
  takesValue,
  written,
} from './spec.ts';

export function bash(root: Command): string {
  const names = root.commands.map((command) => command.name());
  const globals = globalOptions(root).flatMap(written);
  const cases = root.commands.map((command) => {
    const options = [...optionsOf(command, root).flatMap(written), '--help'];
    return `      ${command.name()}) command=1 words='${choicesOf(command).join(' ')}' options='${options.join(' ')}' ${kindText(command)};;`;
  });
  const options = [
    ...new Map(root.commands.flatMap((command) => optionsOf(command, root)).map((each) => [each.flags, each])).values(),
  ];
  const values = options
    .filter(takesValue)
    .map((option) => `    ${written(option).join('|')}) ${valueText(option)} ;;`);
  const valued = options.filter(takesValue).flatMap(written).join('|');
  return `# Completion of isthmus for bash; made by: isthmus completion bash
_isthmus_names() {
  local program=$1 kind=$2 place asked=()
  shift 2
  for ((place = 1; place <= $#; place++)); do
    case \${!place} in
      ${ASKING.join('|')}) asked+=("\${@:place:2}") ;;
      ${ASKING.filter((name) => name.startsWith('--'))
        .map((name) => `${name}=*`)
        .join('|')}) asked+=("\${!place}") ;;
    esac
  done
  "$program" completion --names "$kind" ${NAMES_TIMEOUT} "\${asked[@]}" 2>/dev/null </dev/null
}
_isthmus() {
  # COMP_WORDS breaks addresses at their colons.
  local typed current='' previous words='${names.join(' ')}' options='${globals.join(' ')} --help' kinds='' command='' place kind colon
  read -ra typed <<<"\${COMP_LINE:0:COMP_POINT}"
  [[ \${COMP_LINE:0:COMP_POINT} == *[[:space:]] ]] || { current=\${typed[\${#typed[@]}-1]}; unset 'typed[\${#typed[@]}-1]'; }
  previous=\${typed[\${#typed[@]}-1]}
  for ((place = 1; place < \${#typed[@]}; place++)); do
    case \${typed[place]} in
      ${valued}) ((place++)); continue ;;
    esac
    # A word that was chosen is not offered for the next argument.
    if [[ -n $command ]]; then [[ " $words " == *" \${typed[place]} "* ]] && words=''; continue; fi
    case \${typed[place]} in
${cases.join('\n')}
    esac
  done
  case $previous in
${values.join('\n')}
    certs|diag) COMPREPLY=($(compgen -f -- "$current")); return ;;
  esac
  [[ $current == -* ]] && kinds=''
  for kind in $kinds; do words="$words $(_isthmus_names "$1" "$kind" "\${typed[@]:1}")"; done
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  # Options are many, and would hide the names.
  ((\${#COMPREPLY[@]})) || COMPREPLY=($(compgen -W "$options" -- "$current"))
  if [[ $current == *:* && $COMP_WORDBREAKS == *:* ]]; then
    colon=\${current%"\${current##*:}"}
    COMPREPLY=("\${COMPREPLY[@]#"$colon"}")
  fi
}
complete -o filenames -F _isthmus isthmus
`;
}

function kindText(command: Command): string {
  const kinds = command.registeredArguments.flatMap((argument) => namesOfArgument(command, argument) ?? []);
  return kinds.length > 0 ? `kinds='${kinds.join(' ')}' ` : '';
}

/** What follows an option. */
function valueText(option: Option): string {
  const kind = namesOfOption(option);
  if (kind) return `words='' options='' kinds=${kind}`;
  if (option.argChoices) return `words='${option.argChoices.join(' ')}' options='' kinds=''`;
  if (takesFile(option)) return 'COMPREPLY=($(compgen -f -- "$current")); return';
  return 'return';
}
