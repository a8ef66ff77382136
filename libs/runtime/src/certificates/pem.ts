/** A block of a PEM text (RFC 7468). */
export interface PemBlock {
  /** `CERTIFICATE`. */
  readonly label: string;
  /** What is in it. Unset for a block that is damaged, has no end, or has fields in front (RFC 1421), as encrypted keys have. */
  readonly bytes: Buffer | undefined;
}

const BOMS_AND_BLANKS = /^(?:\xef\xbb\xbf|\ufeff|[ \t])+/gm;

/**
 * A text as everything that reads PEM gets it, OpenSSL too: without what people's editors and YAML put in front of lines (a byte order mark,
 * blanks), and with one kind of line end. OpenSSL sees no block behind a byte order mark, and Go none behind either.
 */
export function pemText(pem: Buffer | string): string {
  return pem
    .toString('latin1')
    .replaceAll(/\r+\n?/g, '\n')
    .replaceAll(BOMS_AND_BLANKS, '');
}

/** The blocks of some labels, in order: those that begin at the start of a line. */
export function pemBlocks(pem: Buffer | string, ...labels: readonly string[]): PemBlock[] {
  const text = pemText(pem);
  const read = new Map(readBlocks(text));
  const begins = new RegExp(`^-----BEGIN (${labels.join('|')})-----`, 'gm');
  return [...text.matchAll(begins)].map(({ index, 1: label = '' }) => ({ label, bytes: read.get(index) }));
}

const [BEGIN, END, DASHES] = ['-----BEGIN ', '\n-----END ', '-----'];

/**
 * Yields where a block begins, and what is in it, of each that Go reads (encoding/pem, Decode): an END closes the last BEGIN before it, whose
 * label it has, and nothing but base64 stands between.
 */
function* readBlocks(text: string): Generator<[at: number, bytes: Buffer]> {
  for (let from = 0, end = text.indexOf(END); end >= 0; end = text.indexOf(END, from)) {
    const begin = from + text.slice(from, end).lastIndexOf(BEGIN);
    const closing = end + END.length;
    const read = begin >= from && (begin === 0 || text[begin - 1] === '\n') ? blockAt(text, begin, end) : undefined;
    if (read) yield [begin, read];
    from = read ? lineAt(text, closing).next - 1 : closing;
  }
}

function blockAt(text: string, begin: number, end: number): Buffer | undefined {
  const first = lineAt(text, begin + BEGIN.length);
  if (!first.line.endsWith(DASHES)) return undefined;
  const body = text.slice(first.next, end);
  return lineAt(text, end + END.length).line === first.line ? fromBase64(body.replaceAll(/[ \t\n]/g, '')) : undefined;
}

/** A line without blanks at its end, and where the next one begins. */
function lineAt(text: string, from: number): { readonly line: string; readonly next: number } {
  const found = text.indexOf('\n', from);
  const end = found < 0 ? text.length : found;
  let last = end;
  // Not by a pattern, which would look at the blanks of a long line again from each of them.
  while (last > from && (text[last - 1] === ' ' || text[last - 1] === '\t')) last--;
  return { line: text.slice(from, last), next: end + 1 };
}

function fromBase64(text: string): Buffer | undefined {
  if (text.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(text)) return undefined;
  // Not of Node's pool of buffers, 64 KiB of which would live for as long as the certificate.
  const bytes = Buffer.alloc(Buffer.byteLength(text, 'base64'));
  bytes.write(text, 'base64');
  return bytes;
}
