import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { namespace, pathsMissing } from '../../chaos/network.ts';
import { killChild, Scope } from '../../harness/index.ts';
import type { AnpBinaries } from '../families.ts';

export interface PathSettings {
  /** Names of cases, or what they begin with; empty for all. */
  readonly cases: readonly string[];
  readonly windowMs: number;
  readonly anp?: AnpBinaries;
  /** TCP's congestion control; default: the machine's. */
  readonly tcp?: string;
}

/** Measures planes over paths, in a network of its own. @returns whether it could */
export async function runPaths(settings: PathSettings, signal: AbortSignal): Promise<boolean> {
  const missing = pathsMissing();
  if (missing) throw new Error(missing);
  await using scope = new Scope();
  const { command } = await namespace(scope, []);
  const [ip, ...inside] = command;
  const main = fileURLToPath(new URL('./main.ts', import.meta.url));
  const args = [...inside, process.execPath, main, JSON.stringify(settings)];
  const child = spawn(ip, args, { stdio: ['ignore', 'inherit', 'inherit'] });
  scope.defer(() => killChild(child));
  const [status] = await Promise.race([once(child, 'exit'), once(signal, 'abort')]);
  return status === 0;
}
