import { Argument, Option } from 'commander';
import { type Call, command } from '../command.ts';
import { namesIn } from '../completion/names.ts';
import { SHELLS, type Shell } from '../completion/shells.ts';
import { NAME_KINDS, type NameKind } from '../completion/spec.ts';
import { EXIT, usage } from '../exit.ts';

export const completion = command({
  name: 'completion',
  summary: 'Print the completion script for a shell',
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
    { line: 'completion --names agents', does: 'what TAB offers behind --agent' },
  ],
  async run({ args: [shell], options, plane, terminal }: Call<{ readonly names?: NameKind }>) {
    if (options.names !== undefined) {
      const names = await namesIn(await plane(), options.names, options.tenant);
      terminal.out(names.map((name) => `${name}\n`).join(''));
      return EXIT.good;
    }
    if (shell === undefined) throw usage(`name the shell: ${Object.keys(SHELLS).join(', ')}`);
    // Imported here because the tree contains all commands, including this one.
    const { commandTree } = await import('../program.ts');
    terminal.out(SHELLS[shell as Shell](commandTree()));
    return EXIT.good;
  },
});
