import { Argument, type Command, Option } from 'commander';
import { type Call, command, NAME_KINDS, type NameKind } from '../command.ts';
import { contextNames } from '../contexts.ts';
import { ISTHMUS } from '../defaults.ts';
import { age, EXIT, usage } from '../output.ts';
import { sessionsOf } from '../plane/evidence.ts';
import type { Plane } from '../plane/plane.ts';

type Shell = 'bash' | 'zsh' | 'fish' | 'kubectl';

/** The completion script of each shell, and of kubectl, generated from the parsed commands. */
export const SHELLS: Readonly<Record<Shell, (root: Command) => string>> = { bash, zsh, fish, kubectl };

export const completion = command({
  name: 'completion',
  summary: 'Print the completion script for a shell, or for kubectl isthmus',
  details:
    'The scripts complete commands, options and their values, and ask the plane for names of members, agents and tenants.',
  args: [new Argument('[shell]', 'which one').choices(Object.keys(SHELLS))],
  options: [
    new Option('--names <kind>', 'print the names of the plane instead, as the scripts do').choices(NAME_KINDS),
  ],
  examples: [
    { line: 'completion bash > /etc/bash_completion.d/isthmus', does: 'bash' },
    { line: 'completion zsh > ~/.zfunc/_isthmus', does: 'zsh, with ~/.zfunc in $fpath' },
    { line: 'completion fish > ~/.config/fish/completions/isthmus.fish', does: 'fish' },
    {
      line: 'completion kubectl > /usr/local/bin/kubectl_complete-isthmus',
      does: 'for kubectl isthmus: executable, on the PATH',
    },
    { line: 'completion --names agents', does: 'what TAB offers behind --agent' },
  ],
  asksNobody: ([shell]) => shell !== undefined,
  async run({ args: [shell], options, plane, terminal, commands }: Call<{ readonly names?: NameKind }>) {
    if (options.names !== undefined) {
      const { names: kind, tenant } = options;
      const names = kind === 'contexts' ? await contextNames(terminal) : await allNames(await plane(), kind, tenant);
      terminal.out(
        offered(names)
          .map((name) => `${name}\n`)
          .join(''),
      );
      return EXIT.good;
    }
    if (shell === undefined) throw usage(`name the shell: ${Object.keys(SHELLS).join(', ')}`);
    terminal.out(SHELLS[shell as Shell](commands()));
    return EXIT.good;
  },
});

/** Returns which names an argument or an option takes. */
function namesFor({ names }: (Argument | Option) & { readonly names?: NameKind }): NameKind | undefined {
  return names;
}

/** Arguments that are files, and how zsh completes them. */
const FILES: Readonly<Record<string, string>> = { dir: '_files -/', file: '_files' };

/** Options of every command that say which plane to ask. A script passes them on. */
const ASKING = ['-a', '--address', '--ca', '--cert', '--key', '--tenant', '--context'] as const;

/** Patterns of the same with their value in one word. */
const ASKING_WITH_VALUE = ASKING.filter((name) => name.startsWith('--')).map((name) => `${name}=*`);

/** A TAB must not hang: for a plane that is away there are no names to offer. */
const NAMES_TIMEOUT = `--timeout ${age(ISTHMUS.namesMs)}`;

/** Returns the written forms of an option, `--name` and `-n`. */
function written({ long, short }: Option): string[] {
  return [long, short].filter((name) => name !== undefined && name !== null);
}

/** The options that every command has. */
function globalOptions(root: Command): readonly Option[] {
  return root.options.filter(({ long }) => long !== '--version');
}

function optionsOf(command: Command, root: Command): readonly Option[] {
  return [...command.options, ...globalOptions(root)];
}

/** Returns the words that a command's arguments accept. */
function choicesOf({ registeredArguments }: Command): string[] {
  return registeredArguments.flatMap(({ argChoices }: Argument) => argChoices ?? []);
}

function takesValue({ required, optional }: Option): boolean {
  return required || optional;
}

function takesFile({ flags }: Option): boolean {
  return /<file>|<path>/.test(flags);
}

/** Escapes text for single quotes of a shell. */
function quoted(text: string): string {
  return text.replaceAll("'", "'\\''");
}

function offered(names: readonly string[]): string[] {
  // A shell splits names at spaces, and would take other characters for its own.
  return [...new Set(names)].filter((name) => /^[\w.:@%+/-]+$/.test(name)).slice(0, ISTHMUS.namesOffered);
}

/** Returns the names of one kind that a plane has now. */
async function allNames(plane: Plane, kind: Exclude<NameKind, 'contexts'>, tenant: string): Promise<string[]> {
  const { members } = plane;
  switch (kind) {
    case 'members':
      return members.map(({ id }) => id);
    case 'gateways':
      return members.filter(({ roles }) => roles.includes('gateway')).map(({ id }) => id);
    case 'hubs':
      return members.filter(({ hubId }) => hubId !== '').map(({ hubId }) => hubId);
    case 'agents':
      return (await sessionsOf(plane, tenant)).sessions.map(({ agent }) => agent);
    case 'tenants': {
      const { answers } = await plane.ask((admin, signal) => admin.listTenants({}, { signal }), 'gateway', 'hub');
      return answers.flatMap(({ value }) => value.tenants.map(({ name }) => name));
    }
  }
}

function bash(root: Command): string {
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
    .map((option) => `    ${written(option).join('|')}) ${bashValue(option)} ;;`);
  const filed = root.commands.filter(({ registeredArguments: [first] }) => first && first.name() in FILES);
  const valued = options.filter(takesValue).flatMap(written).join('|');
  return `# Completion of isthmus for bash; made by: isthmus completion bash
_isthmus_names() {
  local program=$1 kind=$2 place asked=()
  shift 2
  for ((place = 1; place <= $#; place++)); do
    case \${!place} in
      ${ASKING.join('|')}) asked+=("\${@:place:2}") ;;
      ${ASKING_WITH_VALUE.join('|')}) asked+=("\${!place}") ;;
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
    ${filed.map((command) => command.name()).join('|')}) COMPREPLY=($(compgen -f -- "$current")); return ;;
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

/**
 * kubectl completes a plugin by running `kubectl_complete-NAME` with the words behind the name. It takes a line for each word to offer, and at the end a
 * number as of cobra: 4 is that files do not complete it.
 */
function kubectl(root: Command): string {
  return `#!/usr/bin/env bash
${bash(root)}# kubectl runs this file, as kubectl_complete-isthmus.
COMP_LINE="isthmus $*" COMP_POINT=\${#COMP_LINE}
_isthmus kubectl-isthmus
((\${#COMPREPLY[@]})) && printf '%s\\n' "\${COMPREPLY[@]}"
echo :4
`;
}

/** Returns the kinds of names that a command's arguments take. */
function kindsOf({ registeredArguments }: Command): NameKind[] {
  return registeredArguments.flatMap((argument) => namesFor(argument) ?? []);
}

function kindText(command: Command): string {
  const kinds = kindsOf(command);
  return kinds.length > 0 ? `kinds='${kinds.join(' ')}' ` : '';
}

/** What follows an option. */
function bashValue(option: Option): string {
  const kind = namesFor(option);
  if (kind) return `words='' options='' kinds=${kind}`;
  if (option.argChoices) return `words='${option.argChoices.join(' ')}' options='' kinds=''`;
  if (takesFile(option)) return 'COMPREPLY=($(compgen -f -- "$current")); return';
  return 'return';
}

function fish(root: Command): string {
  const names = root.commands.map((command) => command.name());
  const lines = root.commands.flatMap((command) => {
    const name = command.name();
    const here = `-n '__fish_seen_subcommand_from ${name}'`;
    return [
      `complete -c isthmus -f -n __isthmus_needs_command -a ${name} -d '${quoted(command.summary())}'`,
      ...choicesOf(command).map((choice) => `complete -c isthmus -f ${here} -a ${choice}`),
      ...kindsOf(command).map((kind) => `complete -c isthmus -f ${here} -a '(__isthmus_names ${kind})'`),
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
            case ${ASKING_WITH_VALUE.map((pattern) => `'${pattern}'`).join(' ')}
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
  const { long, short, description } = option;
  const names = `${short ? `-s ${short.slice(1)} ` : ''}-l ${long?.slice(2)}`;
  return `${names}${fishValue(option)} -d '${quoted(description)}'`;
}

function fishValue(option: Option): string {
  const kind = namesFor(option);
  if (kind) return ` -x -a '(__isthmus_names ${kind})'`;
  if (option.argChoices) return ` -x -a '${option.argChoices.join(' ')}'`;
  if (!takesValue(option)) return '';
  return takesFile(option) ? ' -r' : ' -x';
}

function zsh(root: Command): string {
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
      ${ASKING_WITH_VALUE.join('|')}) asked+=("$typed[place]") ;;
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
  const kind = namesFor(option);
  // The space keeps _arguments from adding words of its own.
  if (kind) return ` _isthmus_names ${kind}`;
  if (option.argChoices) return `(${option.argChoices.join(' ')})`;
  return takesFile(option) ? '_files' : ' ';
}

function zshArguments(command: Command): string[] {
  return command.registeredArguments.map((argument, index) => {
    const kind = namesFor(argument);
    const values = argument.argChoices ? `(${argument.argChoices.join(' ')})` : (FILES[argument.name()] ?? ' ');
    const place = argument.variadic ? '*' : String(index + 1);
    return `'${place}:${zshText(argument.name())}:${kind ? ` _isthmus_names ${kind}` : values}'`;
  });
}
