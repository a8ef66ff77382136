import { mkdirSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, extname, join } from 'node:path';
import {
  ADMISSION,
  CredentialCache,
  credentialFiles,
  type ReadFile,
  readTenantFile,
  type TenantFile,
  type TenantSource,
} from '@isthmus/admission';
import { countIn, readNamedFile } from '@isthmus/runtime';
import { type Composed, ENDING, FILES, fileName } from './compose.ts';
import { SYNC } from './defaults.ts';

/** A tenant's file of ours that lies in the directory. */
export interface Written {
  /** Its name without the ending. */
  readonly base: string;
  readonly file: TenantSource;
  /** The object that it was made of. */
  readonly object: NonNullable<TenantFile['source']>;
}

/** What lies there of a tenant, whose file names what is in the folder; undefined if it names nothing. */
interface Lying {
  readonly text: string;
  readonly folder: string | undefined;
}

/** Begins the name of what is not complete yet. */
const HALF = '.half-';

/**
 * The tenants' directory as the sync writes it: the files that a tenant's file names lie in a folder of their own, named by their content,
 * and are there before the tenant's file is renamed into its place. So whoever reads sees the old tenant or the new one, and whatever a sync
 * that is killed leaves is of no effect. It touches no file but its own.
 */
export class Directory {
  readonly #dir: string;
  readonly #written = new Map<string, Lying>();
  /** How many of them there are, by namespace. */
  readonly #tenants = new Map<string, number>();
  /** Folders that no tenant's file names, and since when. */
  readonly #unnamed = new Map<string, number>();
  /** By folder that is there, or is to be: what its files take on a disk. The folder itself does not count. */
  readonly #sizes = new Map<string, number>();
  /** The same by namespace. */
  readonly #taken = new Map<string, number>();
  #removals = 0;

  /** @throws Error if it cannot be written */
  constructor(dir: string) {
    this.#dir = dir;
    this.#makeFolder();
    for (const below of ['', FILES])
      for (const name of readdirSync(join(dir, below)))
        if (name.startsWith(HALF)) rmSync(join(dir, below, name), { recursive: true });
    for (const path of readdirSync(join(dir, FILES), { recursive: true }) as string[])
      if (dirname(path) !== '.') this.#take(join(FILES, dirname(path)), onDisk(sizeOf(join(dir, FILES, path)) ?? 0));
  }

  #take(folder: string, bytes: number): void {
    countIn(this.#sizes, folder, bytes);
    countIn(this.#taken, namespaceOf(folder), bytes);
    if (bytes < 0) this.#removals++;
  }

  /** How often something was removed: then there may be a place for what had none. */
  get removals(): number {
    return this.#removals;
  }

  #makeFolder(): void {
    mkdirSync(join(this.#dir, FILES), { recursive: true, mode: 0o750 });
  }

  /** Reads what an earlier sync has written, one after the other. @throws Error if a file of it cannot be read */
  async *load(): AsyncGenerator<Written> {
    for (const name of readdirSync(this.#dir).sort()) {
      if (name.startsWith('.') || extname(name) !== ENDING) continue;
      const text = textOf(join(this.#dir, name));
      if (text === undefined) continue;
      const file = await this.read(text);
      if ('problems' in file.read || !file.read.file.source) continue;
      const { source: object } = file.read.file;
      const base = name.slice(0, -ENDING.length);
      // Somebody's copy of one.
      if (base !== fileName(object)) continue;
      const [path] = credentialFiles(file.read.file).map((each) => each.path);
      this.#lies(base, { text, folder: path && dirname(path) });
      yield { base, file, object };
    }
  }

  /** Reads a tenant's file and the files that it names, as members do. */
  async read(text: string): Promise<TenantSource> {
    const read: ReadFile = readTenantFile(text);
    if ('problems' in read) return { read, credentials: new Map() };
    return { read, credentials: await new CredentialCache(this.#dir).of(read, undefined) };
  }

  /** Whether a tenant's file lies there as it is to be, with all that it names: a machine that crashed, or a hand, may have left less. */
  holds(base: string, composed: Composed): boolean {
    const { text } = composed;
    const whole = sizeOf(join(this.#dir, `${base}${ENDING}`)) === Buffer.byteLength(text);
    return this.text(base) === text && whole && this.#isStaged(composed);
  }

  #isStaged({ folder, files }: Pick<Composed, 'folder' | 'files'>): boolean {
    return [...files].every(([name, bytes]) => sizeOf(join(this.#dir, folder, name)) === bytes.length);
  }

  /** Puts the files there that a tenant's file is to name, which changes no tenant yet. */
  stage({ folder, files }: Pick<Composed, 'folder' | 'files'>): void {
    const to = join(this.#dir, folder);
    if (!this.#sizes.has(folder)) this.#take(folder, bytesOf(files));
    if (this.#isStaged({ folder, files })) return;
    const half = join(this.#dir, FILES, `${HALF}${folder.slice(FILES.length + 1)}`);
    rmSync(half, { recursive: true, force: true });
    this.#makeFolder();
    // On a disk that is read-only, a recursive mkdir says that there is no such directory.
    mkdirSync(half, { mode: 0o750 });
    for (const [name, bytes] of files) writeFileSync(join(half, name), Buffer.from(bytes, 'latin1'), { mode: 0o640 });
    rmSync(to, { recursive: true, force: true });
    renameSync(half, to);
  }

  /** The text of a tenant's file as it lies there. */
  text(base: string): string | undefined {
    return this.#written.get(base)?.text;
  }

  /** How many tenants' files of ours lie there. */
  get size(): number {
    return this.#written.size;
  }

  commit(base: string, { text, folder, files }: Pick<Composed, 'text' | 'folder' | 'files'>): void {
    this.put(`${base}${ENDING}`, text);
    this.#lies(base, { text, folder: files.size > 0 ? folder : undefined });
  }

  #lies(base: string, lying: Lying): void {
    if (!this.#written.has(base)) countIn(this.#tenants, namespaceOf(base), 1);
    this.#written.set(base, lying);
  }

  /**
   * Why a tenant's file has no place, if that is so: members read only so many, and all folders of a namespace share one room, also those that
   * are old.
   */
  full(base: string, { folder, files }: Pick<Composed, 'folder' | 'files'>): string | undefined {
    const namespace = namespaceOf(base);
    const { namespaceTenants: most, namespaceFilesBytes: bytes } = SYNC;
    if (!this.#written.has(base)) {
      if ((this.#tenants.get(namespace) ?? 0) >= most) return `its namespace has ${most} tenants`;
      if (this.size >= ADMISSION.tenantFiles) return `there are ${this.size} tenants, and members read no more`;
    }
    if (this.#sizes.has(folder) || (this.#taken.get(namespace) ?? 0) + bytesOf(files) <= bytes) return undefined;
    return `the files of all tenants of its namespace would take more than ${bytes} bytes, with those that were replaced lately`;
  }

  /** Writes a file so that nobody reads half of it. */
  put(name: string, text: string): void {
    const half = join(this.#dir, `${HALF}${name}`);
    writeFileSync(half, text, { mode: 0o640 });
    renameSync(half, join(this.#dir, name));
  }

  remove(base: string): void {
    rmSync(join(this.#dir, `${base}${ENDING}`), { force: true });
    if (!this.#written.delete(base)) return;
    countIn(this.#tenants, namespaceOf(base), -1);
    this.#removals++;
  }

  /**
   * Removes folders that no tenant's file has named for a while, and puts files back that somebody has removed.
   * @param now of a steady clock
   * @returns the names, without the ending, of tenants' files that were gone, or what they name
   */
  mend(now: number): string[] {
    const there = namesIn(this.#dir);
    if (!there) this.#makeFolder();
    const folders = new Set([...(namesIn(join(this.#dir, FILES)) ?? [])].map((name) => join(FILES, name)));
    const named = new Set([...this.#written.values()].map(({ folder }) => folder));
    // First, because it makes room on a disk that is full.
    for (const folder of folders) {
      const since = this.#unnamed.get(folder) ?? now;
      if (named.has(folder)) this.#unnamed.delete(folder);
      else if (now - since < SYNC.oldFilesMs) this.#unnamed.set(folder, since);
      else {
        rmSync(join(this.#dir, folder), { recursive: true, force: true });
        this.#unnamed.delete(folder);
        folders.delete(folder);
      }
    }
    for (const [folder, bytes] of this.#sizes) if (!folders.has(folder)) this.#take(folder, -bytes);
    const lost: string[] = [];
    for (const [base, { text, folder }] of this.#written) {
      const isGone = !there?.has(`${base}${ENDING}`);
      // Members that have the tenant keep it, whether its files are there or not.
      if (isGone) this.put(`${base}${ENDING}`, text);
      if (isGone || (folder !== undefined && !folders.has(folder))) lost.push(base);
    }
    return lost;
  }
}

/** @param name `NAMESPACE.NAME`, or `.files/NAMESPACE.NAME.DIGEST` */
function namespaceOf(name: string): string {
  return basename(name).split('.', 1)[0] ?? '';
}

function bytesOf(files: Composed['files']): number {
  return [...files.values()].reduce((sum, { length }) => sum + onDisk(length), 0);
}

/** What a file takes on a disk, or in memory, of so many bytes. */
function onDisk(bytes: number): number {
  return SYNC.blockBytes * (1 + Math.floor(bytes / SYNC.blockBytes));
}

/** The names in a directory; undefined if there is none. */
function namesIn(path: string): Set<string> | undefined {
  return sizeOf(path) === undefined ? undefined : new Set(readdirSync(path));
}

/**
 * Undefined for what is no file of a tenant, such as a directory: members say why.
 * @throws the file system's error for one that cannot be read: its tenant would stay in force, and nobody would know of it
 */
function textOf(path: string): string | undefined {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (!stat?.isFile() || stat.size > ADMISSION.tenantFileBytes) return undefined;
  return readNamedFile(path, ADMISSION.tenantFileBytes).toString();
}

/** Undefined if there is no such file. */
function sizeOf(path: string): number | undefined {
  return statSync(path, { throwIfNoEntry: false })?.size;
}
