import { chmod, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A path for a unix socket that only this user can reach. */
export interface PrivateSocket {
  readonly path: string;
  /** Removes the socket and its directory. */
  remove(): Promise<void>;
}

const PREFIX = 'isthmus-admin-';
const NAME = 'rpc';
/** Length of sun_path on macOS, without the final zero; Linux has 107. */
const LONGEST_PATH = 103;
/** A younger directory may belong to a program that is about to listen. */
const LEFTOVER_MS = 60_000;
/** Maximum number of leftovers to check at once. */
const MAX_LEFTOVERS = 100;

/**
 * Creates a new directory with mode 0700. Its name is never reused, so leftovers of a killed program are in nobody's way. The next
 * program removes them.
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
    // Another user's directory may be inaccessible, and one that was just deleted is no leftover.
    const changed = await stat(directory).catch(() => undefined);
    if (!changed || Date.now() - changed.mtimeMs < LEFTOVER_MS) continue;
    if (await refuses(join(directory, NAME))) await rm(directory, { recursive: true, force: true }).catch(() => {});
  }
}

/** Whether the path is a socket on which nobody listens. */
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
