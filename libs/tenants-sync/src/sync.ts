import { setImmediate as tick } from 'node:timers/promises';
import {
  type Claimed,
  Clashes,
  candidate,
  credentialFiles,
  problemMessage,
  readCredential,
  readTenantFile,
  type TenantSource,
} from '@isthmus/admission';
import { countIn } from '@isthmus/runtime';
import { inWords } from '@isthmus/tunnel';
import { type Composed, compose, type Fault, type Profile, type Stores } from './compose.ts';
import { SYNC } from './defaults.ts';
import type { Directory } from './directory.ts';
import type { Source, SourceName } from './kinds.ts';
import { namespaceOf } from './shares.ts';

/** What became of an object. */
export interface Verdict {
  readonly source: Source;
  readonly tenant: string;
  /** The kind of the object that says what the tenant is: a Tenant of its name only overrides. */
  readonly from: Source['kind'];
  /** What its ClusterProfile is to say, if it asks for one. */
  readonly profile?: Profile | undefined;
  /** Why what it says now is not in force; undefined if it is. */
  readonly fault: string | undefined;
  /** Whether an earlier state of it is in force. */
  readonly kept: boolean;
  /** When the file in force was written, by the steady clock. -Infinity: before this sync began, or there is none. */
  readonly writtenAt: number;
}

export interface SyncOptions {
  readonly directory: Directory;
  readonly stores: Stores;
  /** The objects of a name, `NAMESPACE/NAME`: what of a tenant is said later counts. Empty: there is none. */
  readonly sources: (name: string) => readonly Source[];
  readonly graceMs: number;
  /** Called when a tenant was written, is not in force, or was removed. */
  readonly changed: (name: string, verdict: Verdict | undefined) => void;
  /** A steady clock, in milliseconds. */
  readonly now: () => number;
}

/** A tenant's file that can be used by itself. */
interface Pending extends Claimed {
  readonly name: string;
  readonly read: ReturnType<typeof candidate>['read'];
  readonly composed: Composed;
  /** When its object was created. */
  readonly created: number;
}

/**
 * Makes tenants' files of objects, one at a time. A file is written only if it can be used with all others, by the same check that members
 * make; otherwise the last good one stays. Of what it has written, only what a tenant alone may have stays in memory.
 */
export class Sync {
  readonly #options: SyncOptions;
  /** What the files in force claim. */
  readonly #clashes = new Clashes();
  readonly #due = new Set<string>();
  /** By object: what is to be written. It stays here for as long as another has what it claims. */
  readonly #pending = new Map<string, Pending>();
  /** What had no place in the directory. It waits until something is removed there. */
  readonly #full = new Map<string, Pending>();
  /** What was removed there when it was tried last. */
  #removals = 0;
  /** Whether something was written when it was tried last: another may then have what it claims. */
  #wrote = false;
  readonly #verdicts = new Map<string, Verdict>();
  /** By object: the secrets and config maps that it names. */
  readonly #names = new Map<string, readonly string[]>();
  /** Names of objects that are gone, with their kind, and when what they said ends. */
  readonly #leaving = new Map<string, { readonly kind: Source['kind']; readonly at: number }>();
  #running: Promise<void> = Promise.resolve();

  constructor(options: SyncOptions) {
    this.#options = options;
  }

  /** Takes over what an earlier sync has written: it is in force at members. @returns the object of each file */
  async load(): Promise<SourceName[]> {
    const lying: SourceName[] = [];
    for await (const { base, file, object } of this.#options.directory.load()) {
      this.#clashes.take(base, candidate(base, file).claimed);
      lying.push(object as SourceName);
    }
    return lying;
  }

  get verdicts(): Iterable<Verdict> {
    return this.#verdicts.values();
  }

  /** How many tenants' files lie in the directory. */
  get written(): number {
    return this.#options.directory.size;
  }

  /** An object is new, has changed or is gone. @param gone the last that was known of it, if it is gone */
  changed(name: string, gone?: Source): void {
    const { sources, now, graceMs } = this.#options;
    const left = sources(name);
    this.#due.add(name);
    // What was refused gets in force no more once the object says something else, or is gone.
    this.#forget(name);
    if (left.some(({ kind }) => kind === this.#leaving.get(name)?.kind)) this.#leaving.delete(name);
    // A Tenant that only overrides a Cluster may go at once. A Cluster may not, though a Tenant of its name stays.
    if (!gone || this.#leaving.has(name) || (left.length > 0 && gone.kind === 'Tenant')) return;
    this.#leaving.set(name, { kind: gone.kind, at: now() + (gone.atOnce ? 0 : graceMs) });
  }

  /** Secrets or config maps are new, have changed or are gone. */
  changedValues(isChanged: (name: string) => boolean): void {
    for (const [object, names] of this.#names) if (names.some(isChanged)) this.#due.add(object);
  }

  /** Writes what has changed. Calls follow each other. */
  flush(): Promise<void> {
    this.#running = this.#running.catch(() => {}).then(() => this.#flush());
    return this.#running;
  }

  async #flush(): Promise<void> {
    const { directory, now } = this.#options;
    const left = new Set(this.#due);
    let stays: unknown;
    do {
      const due = this.#round();
      for (const [index, name] of due.entries()) {
        left.delete(name);
        if (index % SYNC.tenantsATick === SYNC.tenantsATick - 1) await tick();
        try {
          await this.#draft(name);
        } catch (error) {
          this.#fail(name, undefined, error);
        }
      }
      stays = this.#end();
      if (due.length > 0 || this.#wrote || directory.removals !== this.#removals) this.#write();
    } while (left.size > 0);
    for (const base of directory.mend(now())) this.#due.add(nameOf(base));
    if (stays) throw stays;
  }

  /**
   * Takes out what is due next. What has been judged before and keeps what it claims waits if its namespace has much of it: others' changes are
   * written in between. All that is new is settled at once, by its age.
   */
  #round(): string[] {
    const taken = new Map<string, number>();
    const due = [...this.#due].filter((name) => {
      const path = baseOf(name);
      const isWritten = this.#options.directory.text(path) !== undefined;
      if (!this.#verdicts.has(name) || this.#clashes.has(path) !== isWritten) return true;
      return countIn(taken, namespaceOf(name), 1) <= SYNC.tenantsARound;
    });
    for (const name of due) this.#due.delete(name);
    return due;
  }

  /** Composes an object, and says what is wrong with it or has it written. */
  async #draft(name: string): Promise<void> {
    const { sources, stores, directory } = this.#options;
    const [first, ...more] = sources(name);
    const path = baseOf(name);
    const written = directory.text(path);
    this.#forget(name);
    // A write has failed: what was written before is in force.
    if (written !== undefined && !this.#clashes.has(path))
      this.#clashes.take(path, candidate(path, await directory.read(written)).claimed);
    if (!first) {
      this.#names.delete(name);
      this.#verdicts.delete(name);
    }
    if (!first || this.#leaving.has(name)) return;
    const { result, names } = compose([first, ...more], stores);
    this.#names.set(name, names);
    if ('faults' in result) return this.#judge(name, undefined, result.faults.map(faultText).join('; '));
    if (directory.holds(path, result) && this.#clashes.has(path)) return this.#judge(name, result, undefined);
    const file = await asMembersRead(result);
    const { claimed, problems, read } = candidate(path, file);
    const fault = foreignFile(file, result) ?? inFile(path, problems);
    if (fault !== '') return this.#judge(name, result, fault);
    // It has changed meanwhile.
    if (this.#due.has(name)) return;
    this.#pending.set(name, { name, path, claimed, read, composed: result, created: first.created });
  }

  #forget(name: string): void {
    this.#pending.delete(name);
    this.#full.delete(name);
  }

  /** Of two new files that claim the same, the one of the older object gets it. */
  #write(): void {
    const { directory } = this.#options;
    this.#wrote = false;
    if (directory.removals !== this.#removals) {
      for (const [name, each] of this.#full) this.#pending.set(name, each);
      this.#full.clear();
      this.#removals = directory.removals;
    }
    const rank = ({ path }: Pending) => (this.#clashes.has(path) ? 0 : 1);
    // What has no place claims nothing.
    const pending = [...this.#pending.values()]
      .filter((each) => !this.#isFull(each))
      .sort((a, b) => rank(a) - rank(b) || a.created - b.created || (a.path < b.path ? -1 : 1));
    const refused = this.#clashes.settle(pending);
    for (const each of pending) {
      const { name, path, composed, read } = each;
      const clashes = refused.get(each);
      if (clashes) {
        const problems = clashes.flatMap(({ at, message }) => read?.problem(at, message) ?? []);
        this.#judge(name, composed, inFile(path, problems));
        continue;
      }
      if (this.#isFull(each)) {
        // One of these has taken the place. What the file in force claims is taken again at the next flush.
        this.#clashes.release(path);
        this.#due.add(name);
        continue;
      }
      try {
        directory.stage(composed);
        directory.commit(path, composed);
        this.#wrote = true;
        this.#pending.delete(name);
        this.#judge(name, composed, undefined, this.#options.now());
      } catch (error) {
        this.#clashes.release(path);
        this.#fail(name, composed, error);
      }
    }
  }

  /** Whether the directory has no place for it. */
  #isFull(pending: Pending): boolean {
    const { name, path, composed } = pending;
    const full = this.#options.directory.full(path, composed);
    if (full === undefined) return false;
    this.#forget(name);
    this.#full.set(name, pending);
    this.#judge(name, composed, full);
    return true;
  }

  /** Ends tenants whose objects are gone, and whose grace is over. @returns why a file stays, which is tried again */
  #end(): unknown {
    const { directory, now, changed, sources } = this.#options;
    let stays: unknown;
    for (const [name, { at }] of this.#leaving) {
      if (now() < at) continue;
      const base = baseOf(name);
      if (sources(name).length > 0) this.#due.add(name);
      else if (directory.text(base) !== undefined) {
        try {
          directory.remove(base);
        } catch (error) {
          stays = error;
          continue;
        }
        this.#clashes.release(base);
        changed(name, undefined);
      }
      this.#leaving.delete(name);
    }
    return stays;
  }

  /** What cannot be written, as on a full disk, is tried again. */
  #fail(name: string, composed: Composed | undefined, error: unknown): void {
    this.#due.add(name);
    this.#judge(name, composed, `it cannot be written: ${inWords(error)}`);
  }

  /** @param at when its file was written, if it was now */
  #judge(name: string, composed: Composed | undefined, found: string | undefined, at?: number): void {
    const all = this.#options.sources(name);
    const { source = all.at(-1), profile } = composed ?? {};
    if (!source) return;
    const written = this.#options.directory.text(baseOf(name));
    // What is not in force may have another name, or none yet.
    const tenant = found !== undefined && written !== undefined ? tenantIn(written) : (composed?.tenant ?? '');
    const from = all[0]?.kind ?? source.kind;
    const most = SYNC.faultCharacters;
    const fault = found === undefined || found.length <= most ? found : `${found.slice(0, most)}...`;
    const kept = written !== undefined;
    const before = this.#verdicts.get(name);
    const writtenAt = at ?? before?.writtenAt ?? Number.NEGATIVE_INFINITY;
    const verdict = { source, tenant, from, fault, profile, kept, writtenAt };
    this.#verdicts.set(name, verdict);
    if (before?.fault !== fault || before?.source !== source || fault === undefined)
      this.#options.changed(name, verdict);
  }
}

/** @param name `NAMESPACE/NAME` */
function baseOf(name: string): string {
  return name.replace('/', '.');
}

/** @param base of a file: a namespace has no dot in it */
function nameOf(base: string): string {
  return base.replace('.', '/');
}

function tenantIn(text: string): string {
  const read = readTenantFile(text);
  return 'problems' in read ? '' : read.file.tenant;
}

function faultText({ at, message }: Fault): string {
  return at === '' ? message : `${at}: ${message}`;
}

/** @param path of the file, without its ending */
function inFile(path: string, problems: ReturnType<typeof candidate>['problems']): string {
  return problems.map((each) => `${path}.yaml:${each.line}: ${problemMessage(each)}`).join('; ');
}

/** What a tenant's file and those that it names are to members, before it is written. */
async function asMembersRead({ text, folder, files }: Composed): Promise<TenantSource> {
  const read = readTenantFile(text);
  const named = 'problems' in read ? [] : credentialFiles(read.file);
  const credentials = named.map(async ({ at, kind, path }) => {
    const bytes = Buffer.from(files.get(path.slice(folder.length + 1)) ?? '', 'latin1');
    return [at, await readCredential(kind, bytes).catch((error: Error) => error)] as const;
  });
  return { read, credentials: new Map(await Promise.all(credentials)) };
}

/** Why a tenant's file may not name what it names: a file that the sync does not put there, or a socket. */
function foreignFile({ read }: TenantSource, { folder, files }: Composed): string | undefined {
  if ('problems' in read) return undefined;
  const isOwn = (path: string) => path.startsWith(`${folder}/`) && files.has(path.slice(folder.length + 1));
  const foreign = credentialFiles(read.file).find(({ path }) => !isOwn(path));
  if (foreign) return `${foreign.at}: expected a secretRef or configMapRef`;
  const socket = read.file.callers?.findIndex(({ unixSocket }) => unixSocket !== undefined) ?? -1;
  return socket < 0 ? undefined : `callers[${socket}].unixSocket: an object cannot have a socket`;
}
