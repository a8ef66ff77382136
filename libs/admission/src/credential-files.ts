import { statSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { setImmediate as tick } from 'node:timers/promises';
import { readNamedFile, reasonOf, skippedIn } from '@isthmus/runtime';
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
  /** The mark of a later state, which may be half of what is being written. */
  later?: string;
  /** How many later states were seen. */
  laterStates?: number;
}

/** A file's state, without its content. Blocks, because a thousand small files cost five times as much in threads. */
function markOf(path: string): string {
  try {
    const { size, mtimeMs, ino, ctimeMs } = statSync(path);
    // Joined, because V8 would keep the parts of a template string in memory as well.
    return [ino, size, mtimeMs, ctimeMs].join(' ');
  } catch (error) {
    return (error as Error).message;
  }
}

/** Whether it is the same file, written to in place, of two marks. */
function isSameFile(one: string, other: string): boolean {
  return one.split(' ', 1)[0] === other.split(' ', 1)[0];
}

/**
 * Reads a file if it has changed since `before`. One that is written in place, and not renamed into its place, is read once it is the same at two
 * looks: half a bundle, or half a tenant's file, can be a whole one that says something else. One that changes at each look is read after a few.
 * @returns `before` itself if nothing has changed
 * @param mark of the file, taken before it is read, so that a change during the read is noticed
 * @throws Error that says why the file cannot be read, without its path
 */
export function readIfChanged<T>(
  path: string,
  most: number,
  before: Content<T> | undefined,
  read: (content: Buffer) => T,
  mark = markOf(path),
): Content<T> {
  if (before?.mark === mark) return before;
  const states = before?.laterStates ?? 0;
  if (before && before.later !== mark && isSameFile(mark, before.mark) && states < ADMISSION.laterStates) {
    before.later = mark;
    before.laterStates = states + 1;
    return before;
  }
  let content: Buffer;
  try {
    content = readNamedFile(path, most);
  } catch (cause) {
    throw new Error(reasonOf(cause), { cause });
  }
  return { mark, value: read(content) };
}

type Reading = Promise<Credential | Error> | Error;

/** By kind and path: `trust /etc/isthmus/ca.pem`. Two kinds read one file each in their own way. */
type Known = Map<string, Content<Reading>>;

/** The files that tenants' files name. Each is read once, even if several name it, and again when it changes. */
export class CredentialCache {
  readonly #dir: string;
  #read: Known = new Map();
  #inUse: Known = new Map();

  /** @param dir where relative paths start */
  constructor(dir: string) {
    this.#dir = dir;
  }

  /** Whether a file has changed since the last attempt to read it. */
  async stale(): Promise<boolean> {
    let looked = 0;
    for (const [key, { mark }] of this.#read) {
      if (markOf(key.slice(key.indexOf(' ') + 1)) !== mark) return true;
      if (++looked % ADMISSION.credentialFilesATick === 0) await tick();
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
    this.#read = all ? this.#inUse : new Map([...this.#read, ...this.#inUse]);
    this.#inUse = new Map();
  }

  #credential({ kind, path: named, most }: CredentialFile): Reading {
    const path = isAbsolute(named) ? named : join(this.#dir, named);
    const key = `${kind} ${path}`;
    const known = this.#inUse.get(key) ?? this.#look(path, kind, most, this.#read.get(key));
    this.#inUse.set(key, known);
    return known.value;
  }

  #look(path: string, kind: CredentialFile['kind'], most: number, before?: Content<Reading>): Content<Reading> {
    const read = (content: Buffer) => readCredential(kind, content).catch((error: Error) => error);
    const mark = markOf(path);
    try {
      return readIfChanged(path, most, before, read, mark);
    } catch (error) {
      return { mark, value: error as Error };
    }
  }
}

function sameIn(before: ReadCredentials, found: ReadCredentials): boolean {
  if (before.size !== found.size) return false;
  return [...found].every(([at, credential]) => {
    const known = before.get(at);
    if (known instanceof Error && credential instanceof Error) return known.message === credential.message;
    return known === credential;
  });
}

type Role = Principal['role'];

interface ProgramBundlesOptions {
  /** Paths of the CA bundles; empty: there is none. */
  readonly paths: Readonly<Record<Role, string>>;
  /** Called when one of them has changed. */
  readonly changed: () => void;
  /** Gets `certificate:failure` for a file that cannot be used. */
  readonly events: PlaneEvents;
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
    this.#timer = setInterval(() => this.look(), ADMISSION.bundlesPollMs).unref();
  }

  of(role: Role): TrustSet | undefined {
    return this.#read[role]?.value;
  }

  look(): void {
    const before = { ...this.#read };
    for (const role of ['agent', 'caller'] as const) {
      try {
        this.#look(role);
      } catch (error) {
        this.#tell(role, `${this.#options.paths[role]}: ${(error as Error).message}`);
      }
    }
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
    this.#tell(role, skippedIn(path, now.value));
  }

  #tell(role: Role, fault: string): void {
    const { paths, events } = this.#options;
    if (fault === (this.#reported[role] ?? '')) return;
    this.#reported[role] = fault;
    const error = fault === '' ? undefined : new Error(fault);
    events.emit('certificate:failure', `${role}s`, paths[role], error);
  }
}
