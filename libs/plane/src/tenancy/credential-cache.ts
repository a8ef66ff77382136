import { isAbsolute, join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import {
  type Credential,
  type CredentialFile,
  credentialFiles,
  type ReadCredentials,
  readCredential,
  type UsableFile,
} from '@isthmus/admission';
import { type Content, readIfChanged, stateOf } from './file-content.ts';

type Reading = Promise<Credential | Error> | Error;

/** Files by path. */
type Known = Map<string, Content<Reading>>;
type ByKind = Record<CredentialFile['kind'], Known>;

function nothing(): ByKind {
  return { trust: new Map(), keys: new Map(), text: new Map(), kubeconfig: new Map(), revoked: new Map() };
}

/** How many files are checked in one turn of the event loop. It takes 1 ms. */
const FILES_A_TURN = 100;

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
        if (++looked % FILES_A_TURN === 0) await turn();
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
    if (before?.mark === state.mark) return before;
    try {
      return readIfChanged(path, most, undefined, read, state);
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
