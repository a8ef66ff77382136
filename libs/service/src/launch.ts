import { readFileSync, statSync } from 'node:fs';

/**
 * Loads a program from what was built of it: from its bundle, which takes half the time, unless something was built or installed
 * since the bundle was made. So no bundle that is out of date ever runs.
 * @param dist the program's `dist` directory, with a slash at its end
 */
export async function launch(dist: URL): Promise<void> {
  await import((currentBundle(dist) ?? new URL('main.js', dist)).href);
}

/** A program's entry in its bundle, where that is up to date. */
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

/** As the build writes it (scripts/lib/bundle-files.mjs). */
interface Current {
  /** Where the bundle lies. */
  readonly directory: string;
  /** The files that it must not be older than, by their paths, as they were. An image has none. */
  readonly madeOf: Readonly<Record<string, { readonly mtimeMs: number; readonly size: number }>>;
}

function read(file: URL): Current | undefined {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    return undefined;
  }
}
