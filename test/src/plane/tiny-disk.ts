import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { type Scope, tempDir } from '../harness/index.ts';

const run = promisify(execFile);

/** Why this process cannot mount one, or false. */
export const unmountable = process.getuid?.() === 0 ? false : 'only root may mount a small file system';

/** Mounts a file system of `kib` KiB. */
export async function tinyDisk(scope: Scope, kib: number): Promise<string> {
  const dir = await tempDir(scope);
  await run('mount', ['-t', 'tmpfs', '-o', `size=${kib}k`, 'tmpfs', dir]);
  scope.defer(() => run('umount', ['-l', dir]));
  return dir;
}
