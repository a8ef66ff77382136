export type Pointer = bigint;

export interface Signature {
  readonly arguments: readonly string[];
  readonly return: string;
}

/** Functions of a library, by name. */
export type Functions<Name extends string> = Readonly<
  Record<Name, (...args: readonly (Pointer | number | Buffer)[]) => never>
>;

/** What is used of `node:ffi`, which Node has from version 26 on. */
export interface Ffi {
  readonly DynamicLibrary: new (path: null) => Library;
  getRawPointer(bytes: Buffer): Pointer;
}

export interface Library {
  getFunctions<Name extends string>(signatures: Readonly<Record<Name, Signature>>): Functions<Name>;
  registerCallback(signature: Signature, callback: (first: Pointer, second: number) => unknown): Pointer;
}

/** Loads what this process has loaded already. Undefined where Node has no `node:ffi`, or is told to do without. */
export function openFfi(): { readonly ffi: Ffi; readonly library: Library } | undefined {
  const { emitWarning } = process;
  // It warns that it is experimental.
  process.emitWarning = () => {};
  try {
    const ffi = process.getBuiltinModule('node:ffi') as Ffi | undefined;
    return ffi && { ffi, library: new ffi.DynamicLibrary(null) };
  } catch {
    return undefined;
  } finally {
    process.emitWarning = emitWarning;
  }
}
