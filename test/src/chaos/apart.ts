import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runApart as run } from '../rig/network.ts';
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
  const dir = await mkdtemp(join(tmpdir(), 'isthmus-chaos-'));
  const file = join(dir, 'outcome.json');
  const args = ['--row', row.name, '--rate', String(rate), '--outcome', file, ...(short ? ['--short'] : [])];
  const settings = ['tcp_rmem', 'tcp_wmem'].map((name) => `net.ipv4.${name}=${SOCKET_BUFFERS}`);
  try {
    await run('chaos/main.ts', args, { signal, settings, stdout: 'ignore' });
    return { ...nothingOf(row), ...JSON.parse(await readFile(file, 'utf8')), row };
  } catch (error) {
    return { ...nothingOf(row), problems: [`its process left no outcome: ${(error as Error).message}`] };
  } finally {
    await rm(dir, { recursive: true });
  }
}

/** Called in the process that `runApart` started. */
export function writeOutcome(file: string, outcome: Outcome): Promise<void> {
  return writeFile(file, JSON.stringify(outcome));
}
