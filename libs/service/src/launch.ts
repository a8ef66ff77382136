import { readFileSync, statSync } from 'node:fs';

/**
 * Loads a program from what was built of it: from its bundle, which takes half the time, unless tsc built something since
 * the bundle was made. So no bundle that is out of date ever runs.
 * @param dist the program's `dist` directory, with a slash at its end
 */
export async function launch(dist: URL): Promise<void> {
  await import(new URL(isCurrent(new URL('bundle/', dist)) ? 'bundle/main.js' : 'main.js', dist).href);
}

/** Whether tsc's build infos are those that the bundle was made of. An image has none of them, and nothing but its bundles. */
function isCurrent(bundle: URL): boolean {
  const madeOf = read(new URL('made-of.json', bundle));
  if (!madeOf) return false;
  const found = Object.entries(madeOf).map(([path, { mtimeMs, size }]) => {
    const now = statSync(new URL(path, bundle), { throwIfNoEntry: false });
    return now && now.mtimeMs === mtimeMs && now.size === size;
  });
  return found.every((same) => same === undefined) || found.every((same) => same === true);
}

function read(file: URL): Record<string, { mtimeMs: number; size: number }> | undefined {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    return undefined;
  }
}
