import { currentBundle } from './current-bundle.ts';

/**
 * Loads a built program: from its bundle, which takes half the time, unless something was built or installed after the bundle was made.
 * So an outdated bundle never runs.
 * @param dist the program's `dist` directory, with a trailing slash
 */
export async function launch(dist: URL): Promise<void> {
  await import((currentBundle(dist) ?? new URL('main.js', dist)).href);
}
