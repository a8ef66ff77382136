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

/** A node's children by bit: another node, or as a negative number -1 - octet. */
type Tree = [number, number][];

const TREE = tree();

function tree(): Tree {
  const nodes: Tree = [[0, 0]];
  const octets = LENGTHS.map((length, octet) => ({ length, octet }));
  octets.sort((a, b) => a.length - b.length || a.octet - b.octet);
  let code = 0;
  let before = 0;
  for (const { length, octet } of octets) {
    code <<= length - before;
    before = length;
    insert(nodes, code, length, octet);
    code++;
  }
  return nodes;
}

function insert(nodes: Tree, code: number, length: number, octet: number): void {
  let at = 0;
  for (let bit = length - 1; bit > 0; bit--) {
    const node = nodes[at] as [number, number];
    const side = ((code >> bit) & 1) as 0 | 1;
    if (node[side] === 0) node[side] = nodes.push([0, 0]) - 1;
    at = node[side];
  }
  (nodes[at] as [number, number])[(code & 1) as 0 | 1] = -1 - octet;
}

/**
 * A string that was sent in HPACK's Huffman code.
 * @throws ConnectionError for EOS in it, or for padding that is none
 */
export function huffmanDecode(bytes: Uint8Array): string {
  let text = '';
  let at = 0;
  let depth = 0;
  let ones = true;
  for (const byte of bytes) {
    for (let bit = 7; bit >= 0; bit--) {
      const side = ((byte >> bit) & 1) as 0 | 1;
      const next = (TREE[at] as [number, number])[side];
      depth++;
      ones &&= side === 1;
      if (next >= 0) {
        at = next;
        continue;
      }
      if (next === -1 - EOS) throw new ConnectionError(ErrorCode.COMPRESSION_ERROR, 'HPACK: EOS in a string');
      text += String.fromCharCode(-1 - next);
      at = 0;
      depth = 0;
      ones = true;
    }
  }
  // Padding is the beginning of EOS: up to seven ones.
  if (depth > 7 || !ones) throw new ConnectionError(ErrorCode.COMPRESSION_ERROR, 'HPACK: a string with bad padding');
  return text;
}
