import { randomBytes } from 'node:crypto';
import { chmodSync, lstatSync, renameSync, type Stats, unlinkSync } from 'node:fs';

/**
 * The file of a unix socket that is listened on. It is bound under a name of its own and renamed, so that a restarted process
 * takes the place of the old one in one step: at no moment is there no socket, nor one that others may connect to.
 *
 * libuv deletes the name that it has bound when it closes, which is nobody's by then. The file itself is deleted here, unless
 * it is another process' by now.
 */
export class SocketFile {
  /** The name to bind. */
  readonly boundPath: string;
  readonly #path: string;
  #own: Stats | undefined;

  /** @throws when something is in the way that may not be replaced */
  constructor(path: string, deleteExisting: boolean) {
    const there = lstatSync(path, { throwIfNoEntry: false });
    if (there && !deleteExisting) {
      throw new Error(`${path} exists already (--delete-existing-uds-file would delete it)`);
    }
    if (there && !there.isSocket()) throw new Error(`${path} exists and is no unix socket: it is left alone`);
    this.#path = path;
    // Short, for a socket's name has 107 bytes at most.
    this.boundPath = `${path}.${randomBytes(2).toString('hex')}`;
  }

  /** To be called whenever it was bound: shows it to callers, unless another process has taken over since the first time. */
  place(): void {
    chmodSync(this.boundPath, 0o600);
    const isWanted = this.#own === undefined || this.#stands();
    this.#own = lstatSync(this.boundPath);
    if (isWanted) renameSync(this.boundPath, this.#path);
  }

  /** To be called before the socket is closed: from here on nobody finds it. */
  remove(): void {
    if (this.#stands()) unlinkSync(this.#path);
    this.#own = undefined;
  }

  /** Whether the file is still this process'. Its inode is not given to another while the socket is open. */
  #stands(): boolean {
    const there = lstatSync(this.#path, { throwIfNoEntry: false });
    return there !== undefined && there.ino === this.#own?.ino && there.dev === this.#own.dev;
  }
}
