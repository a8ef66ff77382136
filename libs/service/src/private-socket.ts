import { chmod, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A place for a unix socket that only this user may reach. */
export interface PrivateSocket {
  readonly path: string;
  /** Removes the socket and its directory. */
  remove(): Promise<void>;
}

const PREFIX = 'isthmus-admin-';
const NAME = 'rpc';
/** What sun_path holds on macOS, without the closing zero; Linux has 107. */
const LONGEST_PATH = 103;
/** A younger directory may be one where a program is about to listen. */
const LEFTOVER_MS = 60_000;
/** Leftovers looked at in one go. */
const MAX_LEFTOVERS = 100;

/**
 * Makes a new directory of mode 0700. Its name is never used again, so what a killed program left behind is in nobody's way;
 * it goes when the next program comes.
 */
export async function privateSocket(): Promise<PrivateSocket> {
  const parent = shortTemporaryDirectory();
  await removeLeftovers(parent);
  const directory = await mkdtemp(join(parent, PREFIX));
  await chmod(directory, 0o700);
  const remove = () => rm(directory, { recursive: true, force: true });
  return { path: join(directory, NAME), remove };
}

function shortTemporaryDirectory(): string {
  const fits = Buffer.byteLength(join(tmpdir(), `${PREFIX}123456`, NAME)) <= LONGEST_PATH;
  return fits ? tmpdir() : '/tmp';
}

async function removeLeftovers(parent: string): Promise<void> {
  const names = (await readdir(parent)).filter((name) => name.startsWith(PREFIX));
  for (const name of names.slice(0, MAX_LEFTOVERS)) {
    const directory = join(parent, name);
    // Another user's directory may not be entered, and one that just went is no leftover.
    const changed = await stat(directory).catch(() => undefined);
    if (!changed || Date.now() - changed.mtimeMs < LEFTOVER_MS) continue;
    if (await refuses(join(directory, NAME))) await rm(directory, { recursive: true, force: true }).catch(() => {});
  }
}

/** True when there is a socket on which nobody listens. */
function refuses(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.on('connect', () => {
      socket.destroy();
      resolve(false);
    });
    socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code === 'ECONNREFUSED'));
  });
}
