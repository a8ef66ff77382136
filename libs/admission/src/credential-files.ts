import { readFileSync, statSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { setImmediate as tick } from 'node:timers/promises';
import type { PlaneEvents, Principal } from '@isthmus/tunnel';
import { TrustSet } from './certificate-trust.ts';
import {
  type Credential,
  type CredentialFile,
  credentialFiles,
  type ReadCredentials,
  readCredential,
} from './credentials.ts';
import { ADMISSION } from './defaults.ts';
import type { UsableFile } from './tenant-file.ts';

/** A file as it was last read. */
export interface Content<T> {
  /** Changes when the file does. */
  readonly mark: string;
  readonly value: T;
}

/** A file's state, without its content. */
interface FileState {
  readonly mark: string;
  readonly size: number;
  /** Why it cannot be read. */
  readonly fault?: Error;
}

/** Reads a file's state. Blocks, because a thousand small files cost five times as much in threads. */
function stateOf(path: string): FileState {
  try {
    const stat = statSync(path);
    const { size, mtimeMs, ino, ctimeMs } = stat;
    // Joined, because V8 would keep the parts of a template string in memory as well.
    const mark = [ino, size, mtimeMs, ctimeMs].join(' ');
    // A pipe or a device might never end.
    return stat.isFile() ? { mark, size } : { mark, size, fault: new Error('it is not a regular file') };
  } catch (error) {
    return { mark: (error as Error).message, size: 0, fault: error as Error };
  }
}

/**
 * Reads a file if it has changed since `before`.
 * @returns `before` itself if nothing has changed
 * @throws the file system's error, or one that says that the file is too large
 */
export function readIfChanged<T>(
  path: string,
  most: number,
  before: Content<T> | undefined,
  read: (content: Buffer) => T,
  { mark, size, fault } = stateOf(path),
): Content<T> {
  if (fault) throw fault;
  if (before?.mark === mark) return before;
  if (size > most) throw new Error(`it has ${size} bytes: at most ${most} are allowed`);
  const content = readFileSync(path);
  if (content.length > most) throw new Error(`it has more than ${most} bytes`);
  return { mark, value: read(content) };
}

type Reading = Promise<Credential | Error> | Error;

/** Files by path. */
type Known = Map<string, Content<Reading>>;
type ByKind = Record<CredentialFile['kind'], Known>;

function nothing(): ByKind {
  return { trust: new Map(), keys: new Map(), text: new Map(), kubeconfig: new Map(), revoked: new Map() };
}

/** The files that tenants' files name. Each is read once, even if several name it, and again when it changes. */
export class CredentialCache {
  readonly #dir: string;
  #read = nothing();
  #inUse = nothing();

  /** @param dir where relative paths start */
  constructor(dir: string) {
    this.#dir = dir;
  }

  /** Whether a file has changed since the last attempt to read it. */
  async stale(): Promise<boolean> {
    let looked = 0;
    for (const known of Object.values(this.#read)) {
      for (const [path, { mark }] of known) {
        if (stateOf(path).mark !== mark) return true;
        if (++looked % ADMISSION.credentialFilesATick === 0) await tick();
      }
    }
    return false;
  }

  /** Reads what a tenant's file names. @returns `before` itself if nothing has changed */
  async of({ file }: UsableFile, before: ReadCredentials | undefined): Promise<ReadCredentials> {
    const found = new Map<string, Credential | Error>();
    for (const named of credentialFiles(file)) found.set(named.at, await this.#credential(named));
    return before && sameIn(before, found) ? before : found;
  }

  /** Call after each check. @param all whether every tenant's file was checked. Files that none of them named are then forgotten */
  looked(all: boolean): void {
    if (!all) {
      for (const [kind, known] of Object.entries(this.#read) as [CredentialFile['kind'], Known][])
        for (const [path, content] of known) if (!this.#inUse[kind].has(path)) this.#inUse[kind].set(path, content);
    }
    this.#read = this.#inUse;
    this.#inUse = nothing();
  }

  #credential({ kind, path: named, most }: CredentialFile): Reading {
    const path = isAbsolute(named) ? named : join(this.#dir, named);
    const known = this.#inUse[kind].get(path) ?? this.#look(path, kind, most);
    this.#inUse[kind].set(path, known);
    return known.value;
  }

  #look(path: string, kind: CredentialFile['kind'], most: number): Content<Reading> {
    const before = this.#read[kind].get(path);
    const read = (content: Buffer) => readCredential(kind, content).catch((error: Error) => error);
    // Taken before the file is read, so that a change during the read is noticed.
    const state = stateOf(path);
    try {
      return readIfChanged(path, most, before, read, state);
    } catch (error) {
      return { mark: state.mark, value: unreadable(error as NodeJS.ErrnoException) };
    }
  }
}

const READ_FAILURES: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file',
  EACCES: 'permission denied',
  EISDIR: 'it is a directory',
};

function unreadable({ code = '', message }: NodeJS.ErrnoException): Error {
  return new Error(READ_FAILURES[code] ?? message);
}

function sameIn(before: ReadCredentials, found: ReadCredentials): boolean {
  if (before.size !== found.size) return false;
  for (const [at, credential] of found) {
    const known = before.get(at);
    if (known !== credential && !sameError(known, credential)) return false;
  }
  return true;
}

function sameError(one: Credential | Error | undefined, other: Credential | Error): boolean {
  return one instanceof Error && other instanceof Error && one.message === other.message;
}

type Role = Principal['role'];

const CERTIFICATE_PLACES = { agent: 'agents', caller: 'callers' } as const;

interface ProgramBundlesOptions {
  /** Paths of the CA bundles; empty: there is none. */
  readonly paths: Readonly<Record<Role, string>>;
  /** Called when one of them has changed. */
  readonly changed: () => void;
  /** Gets `certificate:failure` for a file that cannot be used. */
  readonly events: PlaneEvents;
  /** How often the files are checked for changes, in milliseconds; default 4000. */
  readonly pollMs?: number | undefined;
}

/** Follows the program's own CA bundles (--cluster-ca-cert, --server-ca-cert). While a file cannot be used, its last good bundle stays in force. */
export class ProgramBundles {
  readonly #options: ProgramBundlesOptions;
  readonly #read: { [R in Role]?: Content<TrustSet> } = {};
  readonly #reported: { [R in Role]?: string } = {};
  readonly #timer: NodeJS.Timeout;

  /** @throws Error if one cannot be used */
  constructor(options: ProgramBundlesOptions) {
    this.#options = options;
    for (const role of ['agent', 'caller'] as const) this.#look(role);
    this.#timer = setInterval(() => this.look(), options.pollMs ?? ADMISSION.bundlesPollMs).unref();
  }

  of(role: Role): TrustSet | undefined {
    return this.#read[role]?.value;
  }

  look(): void {
    const before = { ...this.#read };
    for (const role of ['agent', 'caller'] as const) this.#lookAgain(role);
    if (before.agent !== this.#read.agent || before.caller !== this.#read.caller) this.#options.changed();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #look(role: Role): void {
    const path = this.#options.paths[role];
    if (path === '') return;
    const read = (content: Buffer) => new TrustSet(content.toString('latin1'));
    const before = this.#read[role];
    const now = readIfChanged(path, ADMISSION.credentialFileBytes, before, read);
    this.#read[role] = now;
    if (now === before) return;
    for (const each of now.value.skipped) this.#tell(role, `${each}: the others are used, this one is not`);
  }

  #lookAgain(role: Role): void {
    try {
      this.#look(role);
      this.#reported[role] = '';
    } catch (error) {
      const { message } = error as Error;
      const known = this.#reported[role] === message;
      this.#reported[role] = message;
      if (!known) this.#tell(role, message);
    }
  }

  #tell(role: Role, message: string): void {
    const { paths, events } = this.#options;
    events.emit('certificate:failure', CERTIFICATE_PLACES[role], new Error(`${paths[role]}: ${message}`));
  }
}
