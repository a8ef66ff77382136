/** An element of DER (X.690): a tag, and what is in it. */
export interface Element {
  readonly tag: number;
  readonly value: Buffer;
  /** With tag and length. */
  readonly whole: Buffer;
}

/** Returns the elements in a row. Anything that is not well formed ends the row. */
export function elements(der: Buffer): Element[] {
  const found: Element[] = [];
  const row = new DerReader(der);
  try {
    while (!row.empty) found.push(row.read());
  } catch {
    return found;
  }
  return found;
}

/** Returns what is in the first element with a tag; nothing if there is none. */
export function first(der: Buffer, tag: number): Buffer {
  return elements(der).find((element) => element.tag === tag)?.value ?? NOTHING;
}

const NOTHING = Buffer.alloc(0);

/** Reads elements one after the other, and takes only DER: one length has one encoding. */
export class DerReader {
  readonly #der: Buffer;
  #at = 0;

  constructor(der: Buffer) {
    this.#der = der;
  }

  get empty(): boolean {
    return this.#at >= this.#der.length;
  }

  /** @throws Error if the next element is malformed, or has another tag */
  read(tag?: number): Element {
    const der = this.#der;
    const at = this.#at;
    const found = der[at];
    const short = der[at + 1];
    // A tag of several bytes (31) is in no certificate.
    if (found === undefined || short === undefined || (found & 0x1f) === 0x1f) throw new Error('malformed DER');
    if (tag !== undefined && tag !== found) throw new Error('unexpected element of DER');
    const bytes = short < 0x80 ? 0 : short & 0x7f;
    if (short === 0x80 || bytes > 4 || at + 2 + bytes > der.length) throw new Error('malformed DER');
    const length = bytes === 0 ? short : der.readUIntBE(at + 2, bytes);
    const start = at + 2 + bytes;
    const shortest = bytes === 0 || (length >= 0x80 && der[at + 2] !== 0);
    if (!shortest || start + length > der.length) throw new Error('malformed DER');
    this.#at = start + length;
    return { tag: found, value: der.subarray(start, this.#at), whole: der.subarray(at, this.#at) };
  }

  /** The next element if it has a tag. */
  optional(tag: number): Element | undefined {
    return this.#der[this.#at] === tag ? this.read(tag) : undefined;
  }
}
