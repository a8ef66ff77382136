import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Scope } from './scope.ts';

export { freePort } from '@isthmus/directory/testing/servers';

/** A directory that is removed with the scope. Its path leaves room for a socket's name in the 107 bytes of sun_path. */
export async function tempDir(scope: Scope): Promise<string> {
  const base = tmpdir().length > 40 ? '/tmp' : tmpdir();
  const dir = await mkdtemp(join(base, 'isth-'));
  scope.defer(() => rm(dir, { recursive: true, force: true }));
  return dir;
}
