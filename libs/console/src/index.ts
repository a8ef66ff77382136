/** The page's files, by their names. */
export type PageFiles = Readonly<Record<string, { readonly type: string; readonly body: string }>>;

/** Returns the page as the build has bundled it, or undefined before `npm run build`. */
export async function pageFiles(): Promise<PageFiles | undefined> {
  // A program's bundle holds it as a part that is loaded with the first request.
  const built = await import('../dist/built.js').catch((error: { readonly code?: string }) => {
    if (error.code === 'ERR_MODULE_NOT_FOUND') return undefined;
    throw error;
  });
  return built?.FILES;
}
