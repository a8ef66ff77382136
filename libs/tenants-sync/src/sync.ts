import { setImmediate as tick } from 'node:timers/promises';
import { credentialFiles, problemMessage, type TenantSource, Tenants } from '@isthmus/admission';
import { deleteFrom, getOrPut } from '@isthmus/runtime';
import { inWords } from '@isthmus/tunnel';
import { type Composed, compose, type Fault, fileName, type Profile, type Stores } from './compose.ts';
import { SYNC } from './defaults.ts';
import type { Directory } from './directory.ts';
import type { Source } from './kinds.ts';

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
}

export interface SyncOptions {
  readonly directory: Directory;
  readonly stores: Stores;
  /** The objects of a name, `NAMESPACE/NAME`: what of a tenant is said later counts. Empty: there is none. */
  readonly sources: (name: string) => readonly Source[];
  readonly graceMs: number;
  /** Called when a tenant was written or removed, or cannot be. */
  readonly changed: (name: string, verdict: Verdict | undefined, fault: Error | undefined) => void;
  /** A steady clock, in milliseconds. */
  readonly now: () => number;
}

/** A tenant that is to be written. */
interface Draft {
  readonly name: string;
  readonly base: string;
  readonly source: Source;
  readonly composed: Composed;
}

/**
 * Makes tenants' files of objects, one at a time. A file is written only if it can be used with all others, by the same check that members
 * make; otherwise the last good one stays.
 */
export class Sync {
  readonly #options: SyncOptions;
  readonly #created = new Map<string, number>();
  /** The files, by the same rules as at members. Of two new ones that claim the same, the object that is older has it. */
  readonly #tenants = new Tenants({
    order: (one, other) => {
      const [a, b] = [this.#created.get(one) ?? 0, this.#created.get(other) ?? 0];
      return a - b || (one < other ? -1 : 1);
    },
  });
  readonly #files = new Map<string, TenantSource>();
  readonly #due = new Set<string>();
  /** What is to be written and is refused, because another has what it claims. */
  readonly #refused = new Map<string, Draft>();
  readonly #verdicts = new Map<string, Verdict>();
  /** By secret or config map: the objects that name it. */
  readonly #namedBy = new Map<string, Set<string>>();
  readonly #names = new Map<string, ReadonlySet<string>>();
  /** Names of objects that are gone, of which kind they were, and when what they said ends. */
  readonly #leaving = new Map<string, { readonly kind: Source['kind']; readonly at: number }>();
  #running: Promise<void> = Promise.resolve();

  constructor(options: SyncOptions) {
    this.#options = options;
  }

  /** Takes over what an earlier sync has written: it is in force at members. @param found called with the object of each file */
  async load(found: (object: Pick<Source, 'kind' | 'namespace' | 'name'>) => void): Promise<void> {
    for (const { base, source, object } of await this.#options.directory.load()) {
      this.#files.set(base, source);
      found(object as Pick<Source, 'kind' | 'namespace' | 'name'>);
    }
    this.#tenants.update(this.#files);
  }

  get verdicts(): Iterable<Verdict> {
    return this.#verdicts.values();
  }

  /** How many tenants' files lie in the directory. */
  get written(): number {
    return [...this.#options.directory.bases].length;
  }

  /** An object is new, has changed or is gone. @param gone the last that was known of it, if it is gone */
  changed(name: string, gone?: Source): void {
    const { sources, now, graceMs } = this.#options;
    const left = sources(name);
    this.#due.add(name);
    if (left.some(({ kind }) => kind === this.#leaving.get(name)?.kind)) this.#leaving.delete(name);
    // A Tenant that only overrides a Cluster may go at once. A Cluster may not, though a Tenant of its name stays.
    if (!gone || this.#leaving.has(name) || (left.length > 0 && gone.kind === 'Tenant')) return;
    this.#leaving.set(name, { kind: gone.kind, at: now() + (gone.atOnce ? 0 : graceMs) });
  }

  /** A secret or config map is new, has changed or is gone. */
  changedValues(name: string): void {
    for (const each of this.#namedBy.get(name) ?? []) this.#due.add(each);
  }

  /** Writes what has changed. Calls follow each other. */
  flush(): Promise<void> {
    this.#running = this.#running.then(() => this.#flush());
    return this.#running;
  }

  async #flush(): Promise<void> {
    const due = [...this.#due];
    this.#due.clear();
    const drafts = new Map<string, Draft>();
    for (const [index, name] of due.entries()) {
      if (index % SYNC.tenantsATick === SYNC.tenantsATick - 1) await tick();
      try {
        const draft = await this.#draft(name);
        if (draft) drafts.set(draft.base, draft);
      } catch (error) {
        // Such as a full disk: it is tried again.
        this.#due.add(name);
        this.#options.changed(name, undefined, error as Error);
      }
    }
    this.#end();
    for (const [base, draft] of this.#refused) if (!drafts.has(base)) drafts.set(base, draft);
    this.#refused.clear();
    if (drafts.size > 0) this.#write(drafts);
    this.#options.directory.sweep(this.#options.now());
  }

  /** Composes an object. @returns undefined if nothing is to be written */
  async #draft(name: string): Promise<Draft | undefined> {
    const { sources, stores, directory } = this.#options;
    const [first, ...more] = sources(name);
    if (first && this.#leaving.has(name)) return undefined;
    if (!first) {
      this.#depends(name, new Set());
      this.#verdicts.delete(name);
      return undefined;
    }
    const { result, names } = compose([first, ...more], stores);
    this.#depends(name, names);
    const base = fileName(first);
    const source = more.at(-1) ?? first;
    this.#created.set(base, first.created);
    this.#refused.delete(base);
    if ('faults' in result) {
      this.#judge(name, source, undefined, result.faults.map(faultText).join('; '));
      return undefined;
    }
    if (directory.text(base) === result.text && this.#isInForce(base)) {
      this.#judge(name, source, result, undefined);
      return undefined;
    }
    directory.stage(result);
    const file = await directory.read(result.text);
    const foreign = foreignFile(file, result.folder);
    if (foreign !== undefined) {
      this.#judge(name, source, result, foreign);
      return undefined;
    }
    this.#files.set(base, file);
    return { name, base, source, composed: result };
  }

  /** Whether the file that was read last is what is in force. */
  #isInForce(base: string): boolean {
    const read = this.#files.get(base)?.read;
    if (!read || 'problems' in read) return false;
    const tenant = this.#tenants.get(read.file.tenant);
    return tenant?.path === base && tenant.file === read.file;
  }

  #write(drafts: ReadonlyMap<string, Draft>): void {
    const { directory } = this.#options;
    this.#tenants.update(this.#files);
    const problems = new Map(this.#tenants.problems.map(({ path, problems: found }) => [path, found]));
    for (const { name, base, source, composed } of drafts.values()) {
      if (!this.#isInForce(base)) {
        const found = problems.get(base) ?? [];
        const where = found.map((each) => `${base}.yaml:${each.line}: ${problemMessage(each)}`);
        this.#refused.set(base, { name, base, source, composed });
        this.#judge(name, source, composed, where.join('; ') || 'it cannot be used');
        continue;
      }
      try {
        directory.stage(composed);
        directory.commit(base, composed.text);
        this.#judge(name, source, composed, undefined);
      } catch (error) {
        this.#due.add(name);
        this.#judge(name, source, composed, `it cannot be written: ${inWords(error)}`);
      }
    }
  }

  /** Ends tenants whose objects are gone, and whose grace is over. */
  #end(): void {
    const { directory, now, changed, sources } = this.#options;
    for (const [name, { at }] of this.#leaving) {
      if (now() < at) continue;
      this.#leaving.delete(name);
      if (sources(name).length > 0) {
        this.#due.add(name);
        continue;
      }
      const [namespace = '', object = ''] = name.split('/');
      const base = fileName({ namespace, name: object });
      if (!this.#files.delete(base)) continue;
      this.#refused.delete(base);
      this.#created.delete(base);
      directory.remove(base);
      this.#tenants.update(this.#files);
      changed(name, undefined, undefined);
    }
  }

  #judge(name: string, source: Source, composed: Composed | undefined, fault: string | undefined): void {
    const from = this.#options.sources(name)[0]?.kind ?? source.kind;
    const { tenant = '', profile } = composed ?? {};
    const verdict = {
      source,
      tenant,
      from,
      fault,
      profile,
      kept: this.#options.directory.text(fileName(source)) !== undefined,
    };
    const before = this.#verdicts.get(name);
    this.#verdicts.set(name, verdict);
    if (before?.fault !== fault || before?.source !== source || fault === undefined)
      this.#options.changed(name, verdict, undefined);
  }

  /** Remembers what an object names, so that it is written again when that changes. */
  #depends(name: string, names: ReadonlySet<string>): void {
    for (const each of this.#names.get(name) ?? []) {
      if (!names.has(each)) deleteFrom(this.#namedBy, each, name);
    }
    for (const each of names) getOrPut(this.#namedBy, each, () => new Set<string>()).add(name);
    if (names.size > 0) this.#names.set(name, names);
    else this.#names.delete(name);
  }
}

function faultText({ at, message }: Fault): string {
  return at === '' ? message : `${at}: ${message}`;
}

/** Why a tenant's file may not name what it names: a file that the sync has not put there, or a socket. */
function foreignFile({ read }: TenantSource, folder: string): string | undefined {
  if ('problems' in read) return undefined;
  const foreign = credentialFiles(read.file).find(({ path }) => !path.startsWith(`${folder}/`));
  if (foreign) return `${foreign.at}: expected a secretRef or configMapRef`;
  const socket = read.file.callers?.findIndex(({ unixSocket }) => unixSocket !== undefined) ?? -1;
  return socket < 0 ? undefined : `callers[${socket}].unixSocket: an object cannot have a socket`;
}
