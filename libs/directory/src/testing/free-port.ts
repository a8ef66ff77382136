import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * Above 10080, the last port that fetch() rejects (the Fetch standard's "bad port"), and below the kernel's ephemeral range (32768 and
 * up), so that no outgoing connection takes a port before its program binds it.
 */
const FIRST_PORT = 10_200;
const LAST_PORT = 32_000;

/**
 * Test files run in parallel, and a program binds its port some time after it was found free. So each process reserves its own range of
 * ports, through a file in a directory under the system's temporary folder.
 */
const STRETCH = 200;
const STRETCHES = Math.floor((LAST_PORT - FIRST_PORT) / STRETCH);

/** The next port to return, and the end of the reserved range. */
let next = 0;
let end = 0;

/** Reserves a range that no living process holds. */
function takeStretch(): void {
  const dir = join(tmpdir(), 'isthmus-test-ports');
  mkdirSync(dir, { recursive: true });
  const start = Math.floor(Math.random() * STRETCHES);
  for (let step = 0; step < STRETCHES; step++) {
    const index = (start + step) % STRETCHES;
    const path = join(dir, String(index));
    if (!hold(path)) continue;
    process.once('exit', () => rmSync(path, { force: true }));
    next = FIRST_PORT + index * STRETCH;
    end = next + STRETCH;
    return;
  }
  throw new Error(`no stretch of test ports is free: look into ${dir}`);
}

function hold(path: string): boolean {
  try {
    writeFileSync(path, String(process.pid), { flag: 'wx' });
    return true;
  } catch {
    if (existsSync(`/proc/${readOwner(path)}`)) return false;
    rmSync(path, { force: true });
    return false;
  }
}

function readOwner(path: string): string {
  try {
    // Between its creation and its first byte the file is empty. Its owner is alive then.
    return readFileSync(path, 'utf8') || 'self';
  } catch {
    return 'self';
  }
}

/** Returns a TCP port on which nothing listens and which no other test was given. */
export async function freePort(): Promise<number> {
  for (;;) {
    if (next === end) takeStretch();
    const port = next++;
    if (await canListen(port)) return port;
  }
}

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen({ port, exclusive: true }, () => server.close(() => resolve(true)));
  });
}
