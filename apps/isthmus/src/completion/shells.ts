import type { Command } from 'commander';
import { bash } from './bash.ts';
import { fish } from './fish.ts';
import { zsh } from './zsh.ts';

export type Shell = 'bash' | 'zsh' | 'fish';

/** The completion script of each shell, generated from the parsed commands. */
export const SHELLS: Readonly<Record<Shell, (root: Command) => string>> = { bash, zsh, fish };
