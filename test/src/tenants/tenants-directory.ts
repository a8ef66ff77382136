import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { TenantFile } from '@isthmus/admission';
import { stringify } from 'yaml';
import { type Scope, tempDir } from '../harness/index.ts';
import { TenantTrust } from './tenant-trust.ts';

/** A directory of tenants' files, as `--tenants-dir` reads it, and the tenants' credentials beside it. */
export class TenantsDirectory {
  readonly path: string;
  readonly #credentials: string;

  private constructor(base: string) {
    this.path = join(base, 'tenants');
    this.#credentials = join(base, 'credentials');
  }

  static async create(scope: Scope): Promise<TenantsDirectory> {
    const directory = new TenantsDirectory(await tempDir(scope));
    await mkdir(directory.path);
    return directory;
  }

  /** Makes a tenant's credentials. No program knows of it until `write`. */
  async trust(name: string, validMs?: number): Promise<TenantTrust> {
    const dir = join(this.#credentials, name);
    await mkdir(dir, { recursive: true });
    return TenantTrust.create(dir, name, validMs);
  }

  /** Makes a tenant and its file. @param more fields of the file, in place of those that `TenantTrust.file` has */
  async add(name: string, more: Partial<TenantFile> = {}): Promise<TenantTrust> {
    const trust = await this.trust(name);
    await this.write({ ...trust.file, ...more });
    return trust;
  }

  write(file: TenantFile): Promise<void> {
    return this.writeText(`${file.tenant}.yaml`, stringify(file, { aliasDuplicateObjects: false }));
  }

  /** Replaces a file in one step, so that no program reads half of it. */
  async writeText(name: string, text: string): Promise<void> {
    const path = join(this.path, name);
    await writeFile(`${path}.new`, text);
    await rename(`${path}.new`, path);
  }

  async remove(tenant: string): Promise<void> {
    await rm(join(this.path, `${tenant}.yaml`));
  }
}
