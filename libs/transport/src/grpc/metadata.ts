import type { Field } from '@isthmus/wire';

/** A caller's metadata. Values of names that end in `-bin` stay base64. */
export class Metadata {
  readonly #fields: readonly Field[];

  constructor(fields: readonly Field[]) {
    this.#fields = fields;
  }

  /** All values of a name, in order. */
  get(name: string): string[] {
    return this.#fields.filter(([own]) => own === name).map(([, value]) => value);
  }

  /** The first value of a name. */
  first(name: string): string | undefined {
    return this.#fields.find(([own]) => own === name)?.[1];
  }
}
