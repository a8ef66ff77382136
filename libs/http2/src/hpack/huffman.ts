import { ConnectionError, ErrorCode } from '../codes.ts';

/**
 * How many bits HPACK's code has for each octet, and at the end for EOS (RFC 7541 appendix B). The code is canonical: among
 * codes of one length the smaller octet has the smaller code, so the lengths say it all.
 */
// biome-ignore format: sixteen a line
const LENGTHS = [
  13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
  28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
  6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
  5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
  13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
  7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
  15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
  6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
  20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
  24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
  22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
  21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
  26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
  19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
  20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
  26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
  30,
];

const EOS = 256;
const LONGEST_CODE = 30;

/** Of the codes with so many bits: the first, how many there are, and where their octets begin in `OCTETS`. */
interface Row {
  first: number;
  count: number;
  start: number;
}

const ROWS: Row[] = Array.from({ length: LONGEST_CODE + 1 }, () => ({ first: 0, count: 0, start: 0 }));

/** All octets, and EOS, by their codes. */
const OCTETS = new Uint16Array(LENGTHS.length);

// Once for each code and not for each bit of each: a function that runs hot while a program starts brings in V8's optimizing compiler, whose
// own code takes 4 MB that a program at rest does without.
for (const length of LENGTHS) row(length).count++;
for (let bits = 1; bits <= LONGEST_CODE; bits++) {
  const { first, count, start } = row(bits - 1);
  row(bits).first = (first + count) << 1;
  row(bits).start = start + count;
}
{
  const next = ROWS.map(({ start }) => start);
  LENGTHS.forEach((length, octet) => {
    OCTETS[(next[length] as number)++] = octet;
  });
}

function row(bits: number): Row {
  return ROWS[bits] as Row;
}

/** Where a string is put together, in bytes: longer ones are rare, and get room of their own. */
const STRING_ROOM = Buffer.allocUnsafeSlow(1_024);

/** The shortest code has so many bits. */
const SHORTEST_CODE = 5;

/**
 * A string that was sent in HPACK's Huffman code.
 * @throws ConnectionError for EOS in it, or for padding that is none
 */
export function huffmanDecode(bytes: Uint8Array): string {
  const most = Math.ceil((bytes.length * 8) / SHORTEST_CODE);
  const text = most <= STRING_ROOM.length ? STRING_ROOM : Buffer.allocUnsafe(most);
  let length = 0;
  let code = 0;
  let depth = 0;
  for (const byte of bytes) {
    for (let bit = 7; bit >= 0; bit--) {
      code = (code << 1) | ((byte >> bit) & 1);
      if (++depth < SHORTEST_CODE) continue;
      const { first, count, start } = row(depth);
      // A code that is not below its row's end begins a longer one.
      if (code - first >= count) continue;
      const octet = OCTETS[start + code - first] as number;
      if (octet === EOS) throw new ConnectionError(ErrorCode.COMPRESSION_ERROR, 'HPACK: EOS in a string');
      text[length++] = octet;
      code = 0;
      depth = 0;
    }
  }
  // Padding is the beginning of EOS: up to seven ones.
  if (depth > 7 || code !== (1 << depth) - 1) {
    throw new ConnectionError(ErrorCode.COMPRESSION_ERROR, 'HPACK: a string with bad padding');
  }
  return text.toString('latin1', 0, length);
}
