import { spawnSync } from 'node:child_process';
import type { TestContext } from 'node:test';

/**
 * Runs a shell's script whose mounts are its own and go with it, or skips the test where nobody may mount.
 * @param script ends with status 77 where a mount fails. @param args its `$0`, and then `$@`
 */
export function inOwnMounts(t: TestContext, script: string, args: readonly string[], env = process.env) {
  const { status, stderr } = spawnSync('unshare', ['-m', 'sh', '-c', script, ...args], { env });
  if (status !== null && status !== 77) return { status, stderr: stderr.toString() };
  t.skip('no mounts here');
  return undefined;
}
