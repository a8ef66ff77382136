import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Scope } from './scope.ts';

const given = new Set<number>();

/** Below the kernel's ephemeral range (32768 and up), so that no outgoing connection takes a port before its program does. */
const FIRST_PORT = 10_000;
const LAST_PORT = 32_000;

/**
 * Test files run side by side, and a program binds its port a while after it was found free: so each process has a stretch
 * of its own, by its id.
 */
const STRETCH = 200;
const FIRST_OF_PROCESS = FIRST_PORT + (process.pid % Math.floor((LAST_PORT - FIRST_PORT) / STRETCH)) * STRETCH;

/** A TCP port on which nothing listens, and which no other test of this process was given. */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < 1000; tries++) {
    // Beyond its stretch, anywhere.
    const [from, count] = tries < 100 ? [FIRST_OF_PROCESS, STRETCH] : [FIRST_PORT, LAST_PORT - FIRST_PORT];
    const port = from + Math.floor(Math.random() * count);
    if (given.has(port) || !(await canListen(port))) continue;
    given.add(port);
    return port;
  }
  throw new Error('no free TCP port after 1,000 tries');
}

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen({ port, exclusive: true }, () => server.close(() => resolve(true)));
  });
}

/** A directory that goes with the scope. Its path leaves room for a socket's name in the 107 bytes of sun_path. */
export async function tempDir(scope: Scope): Promise<string> {
  const base = tmpdir().length > 40 ? '/tmp' : tmpdir();
  const dir = await mkdtemp(join(base, 'isth-'));
  scope.defer(() => rm(dir, { recursive: true, force: true }));
  return dir;
}
