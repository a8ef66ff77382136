import { readdir } from 'node:fs/promises';
import { extname, join, resolve } from 'node:path';
import { setImmediate as tick } from 'node:timers/promises';
import { type Content, CredentialCache, readIfChanged } from './credential-files.ts';
import { ADMISSION } from './defaults.ts';
import { type ReadReport, readReport, SYNC_REPORT } from './sync-report.ts';
import { type ReadFile, readTenantFile } from './tenant-file.ts';
import { type FileProblems, type TenantSource, Tenants, type TenantsChange, type TenantsOptions } from './tenants.ts';

const FILE_ENDINGS = new Set(['.yaml', '.yml']);

interface TenantsDirOptions extends TenantsOptions {
  readonly dir: string;
  /** The only file there that is read, and how. Default: all tenants' files. */
  readonly only?: OnlyFile | undefined;
  /** Called after each change of the tenants in force. */
  readonly changed: (change: TenantsChange) => void;
  /** Called when the files that cannot be used change, and when the directory cannot be read. */
  readonly failing: (problems: readonly FileProblems[]) => void;
}

export interface OnlyFile {
  readonly name: string;
  readonly read: (source: string) => ReadFile;
}

/** A tenant's file, and what it names. */
interface Known {
  readonly content: Content<ReadFile>;
  readonly source: TenantSource;
}

/** The tenants of a directory of YAML files, followed from the first `read` until `close`. */
export class TenantsDir {
  readonly tenants: Tenants;
  readonly #options: TenantsDirOptions;
  readonly #credentials: CredentialCache;
  #files = new Map<string, Known>();
  #unreadable: FileProblems[] = [];
  /** Files that could not be used when they were read, since there are too many. */
  readonly #unusable = new Set<string>();
  /** What isthmus tenants sync says of its objects, if it writes this directory. */
  #synced: Content<ReadReport> | undefined;
  /** The problems that were reported last. */
  #reported = '';
  #timer: NodeJS.Timeout | undefined;
  /** The last look that was asked for. */
  #looking: Promise<void> = Promise.resolve();
  #closed = false;
  /** Whether this check includes the files that tenants' files name. The timer's checks do every other time, because those cost most. */
  #deep = true;
  /** Whether one of those files has changed. */
  #stale = false;

  constructor(options: TenantsDirOptions) {
    this.#options = options;
    this.tenants = new Tenants(options);
    this.#credentials = new CredentialCache(options.dir);
  }

  get problems(): readonly FileProblems[] {
    return [...this.#unreadable, ...this.tenants.problems, ...(this.#synced?.value(Date.now()) ?? [])];
  }

  /**
   * Looks at the files. A file that was renamed into its place before the call is in force when it resolves: looks follow each other, because one
   * that runs may have passed the file that its caller has just written. One that was written in place waits for another look.
   */
  look(deep = true): Promise<void> {
    this.#looking = this.#looking.catch(() => {}).then(() => this.#look(deep));
    return this.#looking;
  }

  async #look(deep: boolean): Promise<void> {
    this.#deep = deep;
    try {
      await this.read();
    } catch (error) {
      if (this.#closed) return;
      this.#unreadable = [problem(this.#options.dir, `the directory cannot be read: ${(error as Error).message}`)];
      this.#report();
    }
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  /**
   * Reads what has changed, and puts it in force. If a tenant's file cannot be read, the tenant stays as it was.
   * @throws Error if the directory cannot be read: a server that started without its tenants would refuse them all
   */
  async read(): Promise<void> {
    clearTimeout(this.#timer);
    try {
      const same = await this.#readFiles(await this.#names());
      if (!this.#options.only) this.#readReport();
      if (this.#closed) return;
      if (same) return this.#report();
      const change = this.tenants.update(new Map([...this.#files].map(([name, { source }]) => [name, source])));
      if (change.changed.length > 0 || change.gone.length > 0) this.#options.changed(change);
      this.#report();
    } finally {
      // What has changed in place is read when it is the same at the next look.
      const [deep, inMs] = this.#stale ? [true, ADMISSION.tenantsPollMs / 2] : [!this.#deep, ADMISSION.tenantsPollMs];
      if (!this.#closed) this.#timer = setTimeout(() => void this.look(deep), inMs).unref();
    }
  }

  async #names(): Promise<readonly string[]> {
    const { dir, only } = this.#options;
    if (only) return [only.name];
    return (await readdir(dir)).filter((name) => !name.startsWith('.') && FILE_ENDINGS.has(extname(name))).sort();
  }

  /** @returns whether all is as it was */
  async #readFiles(names: readonly string[]): Promise<boolean> {
    const { dir } = this.#options;
    const files = new Map<string, Known>();
    const unreadable: FileProblems[] = [];
    const excess = names.length - ADMISSION.tenantFiles;
    if (excess > 0) unreadable.push(problem(dir, `${names.length} files: only ${ADMISSION.tenantFiles} are read`));
    const left = excess > 0 ? this.#excess(names, excess) : new Set<string>();
    if (excess <= 0) this.#unusable.clear();
    this.#stale = this.#deep && (await this.#credentials.stale());
    for (const [index, name] of names.filter((each) => !left.has(each)).entries()) {
      if (index % ADMISSION.tenantsATick === ADMISSION.tenantsATick - 1) await tick();
      const before = this.#files.get(name);
      try {
        const known = await this.#readFile(join(dir, name), before);
        files.set(name, known);
        this.tenants.prepare(name, known.source);
      } catch (error) {
        if (before) files.set(name, before);
        unreadable.push(problem(name, (error as Error).message));
      }
    }
    this.#credentials.looked(this.#stale);
    const before = this.#files;
    this.#files = files;
    this.#unreadable = unreadable;
    return files.size === before.size && [...files].every(([name, known]) => before.get(name) === known);
  }

  /**
   * The files that are not read. Whoever can add files takes no place of one that is in force, and one that cannot be used gives its place to
   * one that has not been read. A process that starts knows neither: there the first by name are read.
   */
  #excess(names: readonly string[], excess: number): Set<string> {
    const inForce = new Set(this.#files.keys());
    const unread = this.#unreadable.filter(({ path }) => !inForce.has(path));
    for (const { path, kept } of [...unread, ...this.tenants.problems]) {
      if (kept !== undefined) continue;
      inForce.delete(path);
      this.#unusable.add(path);
    }
    const others = names.filter((name) => !inForce.has(name));
    const isUsable = (name: string) => !this.#unusable.has(name);
    return new Set([...others.filter(isUsable), ...others.filter((name) => !isUsable(name))].slice(-excess));
  }

  #readReport(): void {
    const path = join(this.#options.dir, SYNC_REPORT);
    try {
      const read = (content: Buffer) => readReport(content.toString());
      this.#synced = readIfChanged(path, ADMISSION.syncReportBytes, this.#synced, read);
    } catch {
      this.#synced = undefined;
    }
  }

  async #readFile(path: string, before: Known | undefined): Promise<Known> {
    const { dir, only } = this.#options;
    const absolute = (socket: string) => resolve(dir, socket);
    const read = (text: Buffer) => only?.read(text.toString()) ?? readTenantFile(text.toString(), absolute);
    const content = readIfChanged(path, ADMISSION.tenantFileBytes, before?.content, read);
    if (content === before?.content && !this.#stale) return before;
    const { value } = content;
    const known = before?.source.credentials;
    const credentials = 'problems' in value ? (known ?? new Map()) : await this.#credentials.of(value, known);
    if (content === before?.content && credentials === known) return before as Known;
    return { content, source: { read: value, credentials } };
  }

  #report(): void {
    const { problems } = this;
    const text = problems.length === 0 ? '' : JSON.stringify(problems);
    if (text === this.#reported) return;
    this.#reported = text;
    this.#options.failing(problems);
  }
}

function problem(path: string, message: string): FileProblems {
  return { path, problems: [{ line: 1, column: 1, at: '', message }] };
}
