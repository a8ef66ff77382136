import { readdirSync, statSync } from 'node:fs';
import { dirname, extname, join, resolve } from 'node:path';
import {
  ADMISSION,
  CredentialCache,
  problemMessage,
  type ReadFile,
  readTenantFile,
  type TenantSource,
  Tenants,
} from '@isthmus/admission';
import type { adminApi } from '@isthmus/proto/admin';
import { readNamedFile, reasonOf } from '@isthmus/runtime';
import { inWords } from '@isthmus/tunnel';
import { usage } from '../output.ts';

/** As a server's --tenants-dir reads them. */
const ENDINGS = ['.yaml', '.yml'];

export type FileProblem = Omit<adminApi.TenantFileProblem, 'kept'>;

export interface CheckedFiles {
  /** How many files there were. */
  readonly files: number;
  /** Names of the tenants that these files put in force. */
  readonly tenants: readonly string[];
  readonly problems: readonly FileProblem[];
}

/**
 * Checks tenants' files as a server does before it puts them in force: each as a whole, with the files that it names, and all of them
 * together, because two tenants cannot have the same name, port or CA.
 * @param paths of files, and of directories with files
 * @throws Failure if a path does not exist
 */
export async function checkTenantFiles(paths: readonly string[]): Promise<CheckedFiles> {
  const files = [...new Set(paths.flatMap(filesAt))];
  if (files.length === 0) throw usage(`no file ends in ${ENDINGS.join(' or ')} in ${paths.join(', ')}`);
  const sources = new Map<string, TenantSource>();
  for (const file of files) sources.set(file, await sourceOf(file));
  const tenants = new Tenants();
  tenants.update(sources);
  const problems = tenants.problems.flatMap(({ path, problems: found }) =>
    found.map((problem) => {
      const { line, column } = problem;
      return { file: path, line, column, message: problemMessage(problem) };
    }),
  );
  return { files: files.length, tenants: [...tenants.all].map(({ name }) => name), problems };
}

function filesAt(path: string): string[] {
  try {
    if (!statSync(path).isDirectory()) return [path];
    const names = readdirSync(path).filter((name) => !name.startsWith('.') && ENDINGS.includes(extname(name)));
    return names.sort().map((name) => join(path, name));
  } catch (error) {
    throw usage(`cannot read ${path}: ${inWords(error)}`);
  }
}

async function sourceOf(path: string): Promise<TenantSource> {
  const read = tenantFileAt(path);
  if ('problems' in read) return { read, credentials: new Map() };
  return { read, credentials: await new CredentialCache(dirname(path)).of(read, undefined) };
}

function tenantFileAt(path: string): ReadFile {
  try {
    const content = readNamedFile(path, ADMISSION.tenantFileBytes);
    return readTenantFile(content.toString(), (socket) => resolve(dirname(path), socket));
  } catch (error) {
    return { problems: [{ line: 1, column: 1, at: '', message: reasonOf(error) }] };
  }
}
