import { readFileSync, statSync } from 'node:fs';

/** Returns a program's entry in its bundle, if the bundle is up to date. */
export function currentBundle(dist: URL): URL | undefined {
  const bundles = new URL('bundle/', dist);
  const current = read(new URL('current.json', bundles));
  if (!current) return undefined;
  const isUpToDate = Object.entries(current.madeOf).every(([path, { mtimeMs, size }]) => {
    const now = statSync(new URL(path, bundles), { throwIfNoEntry: false });
    return now?.mtimeMs === mtimeMs && now.size === size;
  });
  return isUpToDate ? new URL(`${current.directory}/main.js`, bundles) : undefined;
}

/** The file that the build writes (scripts/lib/bundle-files.mjs). */
interface Current {
  /** Directory of the bundle. */
  readonly directory: string;
  /**
   * The files that the bundle was made from, by path, with their state then. If one has changed, the bundle is outdated. Empty in an
   * image.
   */
  readonly madeOf: Readonly<Record<string, { readonly mtimeMs: number; readonly size: number }>>;
}

function read(file: URL): Current | undefined {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    return undefined;
  }
}
