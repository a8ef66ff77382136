// A row in a process and a network of its own, where the kernel's memory lasts for all of its sockets.
import { interrupted } from '../rig/command.ts';
import { ROWS } from './rows/index.ts';
import { type RunOptions, runRow } from './run-row.ts';

/** What this process is told. */
export interface Apart extends Omit<RunOptions, 'signal'> {
  readonly name: string;
}

process.once('message', async ({ name, ...options }: Apart) => {
  const [row] = ROWS.filter((each) => each.name === name);
  const signal = interrupted();
  const outcome = row && (await runRow(row, { ...options, signal }));
  if (process.connected) process.send?.(outcome);
});
