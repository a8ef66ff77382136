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
  for (let at = 0; at + 2 <= der.length; ) {
    const short = der[at + 1] as number;
    const bytes = short < 0x80 ? 0 : short & 0x7f;
    if (bytes > 4 || at + 2 + bytes > der.length) break;
    const length = bytes === 0 ? short : der.readUIntBE(at + 2, bytes);
    const start = at + 2 + bytes;
    found.push({
      tag: der[at] as number,
      value: der.subarray(start, start + length),
      whole: der.subarray(at, start + length),
    });
    at = start + length;
  }
  return found;
}

/** Returns what is in the first element with a tag; nothing if there is none. */
export function first(der: Buffer, tag: number): Buffer {
  return elements(der).find((element) => element.tag === tag)?.value ?? NOTHING;
}

const NOTHING = Buffer.alloc(0);
