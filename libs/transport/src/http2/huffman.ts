/**
 * HPACK's Huffman code (RFC 7541 appendix B). It is canonical: codes count up from one symbol to the next of the same length,
 * and by length, so the lengths say everything.
 */
const LENGTHS: readonly number[] = [
  ...[13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28],
  ...[28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28],
  ...[6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6],
  ...[5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10],
  ...[13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7],
  ...[7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6],
  ...[15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5],
  ...[6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28],
  ...[20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23],
  ...[24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24],
  ...[22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23],
  ...[21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23],
  ...[26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25],
  ...[19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27],
  ...[20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23],
  ...[26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26],
  // EOS, which never stands in a string.
  30,
];
const EOS = 256;
const LONGEST = 30;

/** Symbols by the length of their code, then by value; and for each length, its first code and where its symbols begin. */
const SYMBOLS: number[] = [];
const FIRST_CODE: number[] = [];
const FIRST_SYMBOL: number[] = [];
for (let length = 0, code = 0; length <= LONGEST; length++) {
  FIRST_CODE.push(code);
  FIRST_SYMBOL.push(SYMBOLS.length);
  LENGTHS.forEach((own, symbol) => {
    if (own === length) SYMBOLS.push(symbol);
  });
  code = (code + SYMBOLS.length - (FIRST_SYMBOL[length] as number)) << 1;
}
FIRST_SYMBOL.push(SYMBOLS.length);

/** @returns the string's bytes as Latin-1, or undefined when they are no Huffman code */
export function decodeHuffman(bytes: Uint8Array): string | undefined {
  let text = '';
  let code = 0;
  let length = 0;
  for (const byte of bytes) {
    for (let bit = 7; bit >= 0; bit--) {
      code = (code << 1) | ((byte >> bit) & 1);
      length++;
      const symbol = symbolOf(code, length);
      if (symbol === undefined) continue;
      if (symbol === EOS) return undefined;
      text += String.fromCharCode(symbol);
      code = 0;
      length = 0;
    }
  }
  // The rest of the last byte is filled with ones (section 5.2).
  return length < 8 && code === (1 << length) - 1 ? text : undefined;
}

function symbolOf(code: number, length: number): number | undefined {
  const first = FIRST_SYMBOL[length] as number;
  const index = first + code - (FIRST_CODE[length] as number);
  return index < (FIRST_SYMBOL[length + 1] as number) ? SYMBOLS[index] : undefined;
}
