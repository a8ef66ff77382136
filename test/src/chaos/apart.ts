import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Scope } from '../harness/index.ts';
import { namespace } from './network.ts';
import type { Row } from './row.ts';
import { nothingOf, type Outcome, type RunOptions } from './run-row.ts';

/**
 * How many bytes one TCP socket may hold in each direction: least, at first, most. A machine allows 4 and 32 MB by default. With
 * these, the sockets of a thousand stalled connections take all memory that the kernel has for TCP, and then no socket of the
 * machine moves data, whichever program relays.
 */
const SOCKET_BUFFERS = '4096 131072 524288';

/** Runs a row and its load in a process and a network of their own, where the kernel's memory lasts for all of its sockets. */
export async function runApart(row: Row, { short, rate, signal }: RunOptions): Promise<Outcome> {
  await using scope = new Scope();
  const { command } = await namespace(scope, []);
  const [ip, ...inside] = command;
  const limit = (name: string) => `net.ipv4.${name}=${SOCKET_BUFFERS}`;
  await promisify(execFile)(ip, [...inside, 'sysctl', '-qw', limit('tcp_rmem'), limit('tcp_wmem')]);
  const dir = await mkdtemp(join(tmpdir(), 'isthmus-chaos-'));
  scope.defer(() => rm(dir, { recursive: true }));
  const file = join(dir, 'outcome.json');
  const main = fileURLToPath(new URL('./main.ts', import.meta.url));
  const args = ['--row', row.name, '--rate', String(rate), '--outcome', file, ...(short ? ['--short'] : [])];
  const child = spawn(ip, [...inside, process.execPath, main, ...args], { stdio: ['ignore', 'ignore', 'inherit'] });
  const stop = () => void child.kill('SIGTERM');
  signal.addEventListener('abort', stop);
  await once(child, 'exit');
  signal.removeEventListener('abort', stop);
  return { ...nothingOf(row), ...(await readOutcome(file)), row };
}

async function readOutcome(file: string): Promise<Partial<Outcome>> {
  try {
    return JSON.parse(await readFile(file, 'utf8'));
  } catch (error) {
    return { problems: [`its process left no outcome: ${(error as Error).message}`] };
  }
}

/** Called in the process that `runApart` started. */
export function writeOutcome(file: string, outcome: Outcome): Promise<void> {
  return writeFile(file, JSON.stringify(outcome));
}
