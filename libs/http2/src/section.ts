/** A field of a header section. */
export type Field = readonly [name: string, value: string];

/** Pseudo-header fields by name. */
export type PseudoFields = Readonly<Record<string, string | undefined>>;

/** What a header section belongs to. */
export type SectionKind = 'request' | 'response' | 'trailers';

/** A field's name is a token in lower case (RFC 9113 section 8.2.1). */
const NAME = /^[!#$%&'*+\-.^_`|~0-9a-z]+$/;

/** A value may contain neither NUL nor a line break. */
const BAD_VALUE = /[\0\r\n]/;

/** Connection-specific fields of HTTP/1.1; HTTP/2 uses frames instead (section 8.2.2). */
const CONNECTION_FIELDS = new Set(['connection', 'keep-alive', 'proxy-connection', 'transfer-encoding', 'upgrade']);

const ALLOWED: Readonly<Record<SectionKind, ReadonlySet<string>>> = {
  request: new Set([':method', ':scheme', ':path', ':authority']),
  response: new Set([':status']),
  trailers: new Set(),
};

const STATUS = /^[1-5]\d\d$/;

/** @returns the pseudo-header fields; undefined if the section is malformed (sections 8.1.1 and 8.3) */
export function readPseudo(section: readonly Field[], kind: SectionKind): PseudoFields | undefined {
  const own: Record<string, string | undefined> = Object.create(null);
  let regular = false;
  for (const [name, value] of section) {
    if (BAD_VALUE.test(value)) return undefined;
    if (!name.startsWith(':')) {
      regular = true;
      if (!NAME.test(name) || CONNECTION_FIELDS.has(name)) return undefined;
      if (name === 'te' && value !== 'trailers') return undefined;
    } else {
      if (regular || !ALLOWED[kind].has(name) || own[name] !== undefined) return undefined;
      own[name] = value;
    }
  }
  return isComplete(own, kind) ? own : undefined;
}

function isComplete(own: PseudoFields, kind: SectionKind): boolean {
  const { ':method': method, ':path': path, ':scheme': scheme, ':authority': authority, ':status': status } = own;
  if (kind === 'trailers') return true;
  if (kind === 'response') return STATUS.test(status ?? '');
  // Section 8.5: a CONNECT has only a destination.
  if (method === 'CONNECT') return Boolean(authority) && path === undefined && scheme === undefined;
  return Boolean(method) && Boolean(path) && scheme !== undefined;
}

/** Whether a section claims to begin a message, well-formed or not: trailers have no pseudo-header fields. */
export function beginsMessage([first]: readonly Field[]): boolean {
  return first?.[0].startsWith(':') ?? false;
}
