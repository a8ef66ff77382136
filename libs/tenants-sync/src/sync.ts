import { setImmediate as tick } from 'node:timers/promises';
import { credentialFiles, problemMessage, type TenantSource, Tenants } from '@isthmus/admission';
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
  /** Called when a tenant was written, is not in force, or was removed. */
  readonly changed: (name: string, verdict: Verdict | undefined) => void;
  /** A steady clock, in milliseconds. */
  readonly now: () => number;
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
  /** By object: what is to be written. It stays here for as long as another has what it claims. */
  readonly #pending = new Map<string, Composed>();
  readonly #verdicts = new Map<string, Verdict>();
  /** By object: the secrets and config maps that it names. */
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
    for (const [object, names] of this.#names) if (names.has(name)) this.#due.add(object);
  }

  /** Writes what has changed. Calls follow each other. */
  flush(): Promise<void> {
    this.#running = this.#running.catch(() => {}).then(() => this.#flush());
    return this.#running;
  }

  async #flush(): Promise<void> {
    const due = [...this.#due];
    this.#due.clear();
    for (const [index, name] of due.entries()) {
      if (index % SYNC.tenantsATick === SYNC.tenantsATick - 1) await tick();
      try {
        await this.#draft(name);
      } catch (error) {
        this.#fail(name, undefined, error);
      }
    }
    const stays = this.#end();
    if (this.#pending.size > 0) this.#write();
    this.#options.directory.sweep(this.#options.now());
    if (stays) throw stays;
  }

  /** Composes an object, and says what is wrong with it or has it written. */
  async #draft(name: string): Promise<void> {
    const { sources, stores, directory } = this.#options;
    const [first, ...more] = sources(name);
    const base = baseOf(name);
    await this.#takeBack(name, base);
    if (!first) {
      this.#names.delete(name);
      this.#verdicts.delete(name);
    }
    if (!first || this.#leaving.has(name)) return;
    const { result, names } = compose([first, ...more], stores);
    this.#names.set(name, names);
    this.#created.set(base, first.created);
    if ('faults' in result) return this.#judge(name, undefined, result.faults.map(faultText).join('; '));
    if (directory.text(base) === result.text && this.#isInForce(base)) return this.#judge(name, result, undefined);
    directory.stage(result);
    const file = await directory.read(result.text);
    const foreign = foreignFile(file, result.folder);
    if (foreign !== undefined) return this.#judge(name, result, foreign);
    this.#files.set(base, file);
    this.#pending.set(name, result);
  }

  /** What was refused gets in force no more once the object says something else, or is gone: the tenant is what was written last. */
  async #takeBack(name: string, base: string): Promise<void> {
    if (!this.#pending.delete(name)) return;
    const text = this.#options.directory.text(base);
    if (text === undefined) this.#files.delete(base);
    else this.#files.set(base, await this.#options.directory.read(text));
  }

  /** Whether the file that was read last is what is in force. */
  #isInForce(base: string): boolean {
    const read = this.#files.get(base)?.read;
    if (!read || 'problems' in read) return false;
    const tenant = this.#tenants.get(read.file.tenant);
    return tenant?.path === base && tenant.file === read.file;
  }

  #write(): void {
    const { directory } = this.#options;
    this.#tenants.update(this.#files);
    const problems = new Map(this.#tenants.problems.map(({ path, problems: found }) => [path, found]));
    for (const [name, composed] of this.#pending) {
      const base = baseOf(name);
      if (!this.#isInForce(base)) {
        const found = problems.get(base) ?? [];
        const where = found.map((each) => `${base}.yaml:${each.line}: ${problemMessage(each)}`);
        this.#judge(name, composed, where.join('; ') || 'it cannot be used');
        continue;
      }
      try {
        directory.stage(composed);
        directory.commit(base, composed.text);
        this.#pending.delete(name);
        this.#judge(name, composed, undefined);
      } catch (error) {
        this.#fail(name, composed, error);
      }
    }
  }

  /** Ends tenants whose objects are gone, and whose grace is over. @returns why a file stays, which is tried again */
  #end(): unknown {
    const { directory, now, changed, sources } = this.#options;
    let stays: unknown;
    for (const [name, { at }] of this.#leaving) {
      if (now() < at) continue;
      const base = baseOf(name);
      if (sources(name).length > 0) this.#due.add(name);
      else if (this.#files.has(base)) {
        try {
          directory.remove(base);
        } catch (error) {
          stays = error;
          continue;
        }
        this.#files.delete(base);
        this.#created.delete(base);
        this.#tenants.update(this.#files);
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

  #judge(name: string, composed: Composed | undefined, found: string | undefined): void {
    const all = this.#options.sources(name);
    const { source = all.at(-1), tenant = '', profile } = composed ?? {};
    if (!source) return;
    const from = all[0]?.kind ?? source.kind;
    const most = SYNC.faultCharacters;
    const fault = found === undefined || found.length <= most ? found : `${found.slice(0, most)}...`;
    const kept = this.#options.directory.text(baseOf(name)) !== undefined;
    const before = this.#verdicts.get(name);
    const verdict = { source, tenant, from, fault, profile, kept };
    this.#verdicts.set(name, verdict);
    if (before?.fault !== fault || before?.source !== source || fault === undefined)
      this.#options.changed(name, verdict);
  }
}

/** @param name `NAMESPACE/NAME` */
function baseOf(name: string): string {
  const [namespace = '', object = ''] = name.split('/');
  return fileName({ namespace, name: object });
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
