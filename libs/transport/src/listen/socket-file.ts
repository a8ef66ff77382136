import { randomBytes } from 'node:crypto';
import { chmodSync, linkSync, lstatSync, renameSync, type Stats, unlinkSync, utimesSync } from 'node:fs';
import net from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

/** What the owner and the group may do: connect. Upstream's socket has 0770. */
const MODE = 0o660;

/**
 * The mode while its process lives and cannot listen for want of descriptors. To callers it is the same, and no other program is
 * known to give it. A path can be marked, and touched, without a descriptor.
 */
const SUSPENDED_MODE = 0o670;

/** How often such a process touches its file, in milliseconds. */
const BEAT_MS = 250;

/** Not touched for so long, such a file is a dead process', in milliseconds: beyond a pause of a busy one. */
const SILENCE_MS = 5000;

/** How long a process may take to be connected to before it counts as one that is there, in milliseconds. */
const ANSWER_MS = 1000;

/** How often another process may be faster before this one gives up. */
const MAX_TRIES = 10;

/**
 * The file of a unix socket that is listened on. It is bound under a name of its own, and shown under the wanted one once its
 * mode is right. A file that a dead process left there is taken away; the file of one that answers never is.
 *
 * libuv deletes the name that it has bound when it closes, which is nobody's by then. The file itself is deleted here, unless
 * it is another process' by now.
 */
export class SocketFile {
  /**
   * The name to bind: beside the wanted one, with 5 bytes, for a socket's path has 107 bytes at most, and the wanted one may have them
   * all. A shorter name in a directory of so long a path is refused by the check of --uds-name.
   */
  readonly boundPath: string;
  readonly #path: string;
  readonly #deleteExisting: boolean;
  #own: Stats | undefined;
  /** While it is suspended: the file has SUSPENDED_MODE then. */
  #beat: NodeJS.Timeout | undefined;

  constructor(path: string, deleteExisting: boolean) {
    this.#path = path;
    this.#deleteExisting = deleteExisting;
    this.boundPath = `${path.slice(0, path.lastIndexOf('/') + 1)}.${randomBytes(2).toString('hex')}`;
  }

  /**
   * To be called once it was bound: shows it to callers. Of several processes that do this at once, one succeeds.
   * @throws when something is in the way that may not be replaced
   */
  async claim(): Promise<void> {
    chmodSync(this.boundPath, MODE);
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const there = statOf(this.#path);
      if (there) await this.#check(there);
      // From here to the end in one go, so that what was seen still holds, or is noticed not to.
      if (there && !this.#clear(there)) continue;
      if (this.#show()) return;
    }
    throw new Error(`${this.#path}: other processes take this --uds-name faster than it can be looked at`);
  }

  /**
   * To be called whenever it was bound again: shows it, unless another process has taken over meanwhile.
   * @throws when the system refuses it; the file stays suspended then
   */
  place(): void {
    chmodSync(this.boundPath, MODE);
    const own = lstatSync(this.boundPath);
    if (this.#stands()) renameSync(this.boundPath, this.#path);
    this.#own = own;
    this.#endBeat();
  }

  /**
   * To be called before the socket is closed for a while. The file stays, and says to processes which find nobody there that its own
   * one lives.
   */
  suspend(): void {
    if (!this.#stands()) return;
    this.#touch();
    chmodSync(this.#path, SUSPENDED_MODE);
    this.#endBeat();
    this.#beat = setInterval(() => this.#touch(), BEAT_MS).unref();
  }

  /** To be called before the socket is closed: from here on nobody finds it. */
  remove(): void {
    const stands = this.#stands();
    this.#endBeat();
    if (stands) unlinkSync(this.#path);
    this.#own = undefined;
  }

  /** Why callers do not find this process at its path, as far as that is not its own doing. */
  get lost(): string | undefined {
    if (this.#own === undefined || this.#stands()) return undefined;
    const what = statOf(this.#path) ? "is another's by now" : 'was deleted';
    return `${this.#path} ${what}, so that callers do not come here: start this server again, with a --uds-name of its own`;
  }

  /** @throws when what is at the path is not to be taken away */
  async #check(there: Stats): Promise<void> {
    const path = this.#path;
    if (!this.#deleteExisting) throw new Error(`${path} exists already (--delete-existing-uds-file would delete it)`);
    if (!there.isSocket()) throw new Error(`${path} exists and is no unix socket: it is left alone`);
    const whose = await ownerOf(path);
    if (whose) throw new Error(`--uds-name ${path}: ${whose}. End that process, or give this one another --uds-name`);
  }

  /** Takes away what a dead process left. @returns whether the path is free */
  #clear(dead: Stats): boolean {
    const aside = `${this.boundPath}~`;
    try {
      renameSync(this.#path, aside);
    } catch (error) {
      return isCode(error, 'ENOENT');
    }
    // What another process has put there since is put back at once, unless a third was faster.
    const isDead = isSame(lstatSync(aside), dead);
    if (!isDead && statOf(this.#path) === undefined) renameSync(aside, this.#path);
    else unlinkSync(aside);
    return isDead;
  }

  /** @returns false when something is there */
  #show(): boolean {
    const own = lstatSync(this.boundPath);
    try {
      linkSync(this.boundPath, this.#path);
      unlinkSync(this.boundPath);
    } catch {
      if (statOf(this.#path)) return false;
      // A file system without hard links.
      renameSync(this.boundPath, this.#path);
    }
    this.#own = own;
    return true;
  }

  #touch(): void {
    try {
      const now = new Date();
      if (this.#stands()) utimesSync(this.#path, now, now);
    } catch {
      // Somebody deleted it in this moment: see `lost`.
    }
  }

  #endBeat(): void {
    clearInterval(this.#beat);
    this.#beat = undefined;
  }

  /**
   * Whether the file is still this process'. Its inode number is not given to another file while the socket is open. While it is
   * suspended it may be, as soon as somebody has deleted this one; no other program gives that file the mode.
   */
  #stands(): boolean {
    const there = statOf(this.#path);
    if (there === undefined || this.#own === undefined || !isSame(there, this.#own)) return false;
    return this.#beat === undefined || isSuspended(there);
  }
}

function statOf(path: string): Stats | undefined {
  return lstatSync(path, { throwIfNoEntry: false });
}

function isSame(a: Stats, b: Stats): boolean {
  return a.ino === b.ino && a.dev === b.dev;
}

function isSuspended({ mode }: Stats): boolean {
  return (mode & 0o777) === SUSPENDED_MODE;
}

function isCode(error: unknown, code: string): boolean {
  return (error as NodeJS.ErrnoException).code === code;
}

/** Whose a socket is, in words; undefined when its process is dead. */
async function ownerOf(path: string): Promise<string | undefined> {
  const refusal = await connectionTo(path);
  if (refusal === undefined) return 'another process listens there';
  if (refusal !== 'ECONNREFUSED' && refusal !== 'ENOENT') return `it cannot be told whose it is (${refusal})`;
  if (!(await isKept(path))) return undefined;
  return 'another process has this socket, and lacks the file descriptors to listen';
}

/** Whether a process keeps a socket on which it does not listen. It was marked before it refused anybody. */
async function isKept(path: string): Promise<boolean> {
  const marked = statOf(path);
  if (!marked || !isSuspended(marked)) return false;
  for (let waited = 0; waited < SILENCE_MS; waited += BEAT_MS) {
    await delay(BEAT_MS);
    const now = statOf(path);
    if (!now) return false;
    if (now.mtimeMs !== marked.mtimeMs || !isSame(now, marked)) return true;
  }
  return false;
}

/** Asks whether someone listens at a socket. @returns the system's refusal; undefined when someone does */
function connectionTo(path: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = net.connect(path);
    const settle = (refusal?: string) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(refusal);
    };
    const timer = setTimeout(settle, ANSWER_MS);
    socket.on('connect', () => settle());
    // The queue of one that listens may be full.
    socket.on('error', ({ code }: NodeJS.ErrnoException) => settle(code === 'EAGAIN' ? undefined : code));
  });
}
