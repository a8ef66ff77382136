import { Argument } from 'commander';
import { type Call, command } from '../command.ts';
import { SHELLS, type Shell } from '../completion/shells.ts';
import { EXIT } from '../exit.ts';

export const completion = command({
  name: 'completion',
  summary: 'Print the completion script for a shell',
  args: [new Argument('<shell>', 'which one').choices(Object.keys(SHELLS))],
  examples: [
    { line: 'completion bash > /etc/bash_completion.d/isthmus', does: 'bash' },
    { line: 'completion zsh > ~/.zfunc/_isthmus', does: 'zsh, with ~/.zfunc in $fpath' },
    { line: 'completion fish > ~/.config/fish/completions/isthmus.fish', does: 'fish' },
  ],
  async run({ args: [shell], terminal }: Call) {
    // Imported here because the tree contains all commands, including this one.
    const { commandTree } = await import('../program.ts');
    terminal.out(SHELLS[shell as Shell](commandTree()));
    return EXIT.good;
  },
});
