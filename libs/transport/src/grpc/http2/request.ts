/** A field of a header section. */
export type Field = readonly [name: string, value: string];

export interface RequestHead {
  readonly method: string;
  readonly path: string;
  /** All fields but HTTP/2's own. */
  readonly fields: readonly Field[];
}

/** A field's name is a token without capitals (RFC 9113 section 8.2.1). */
const NAME = /^[!#$%&'*+\-.^_`|~0-9a-z]+$/;

/** A value may have neither NUL nor a line's end. */
const BAD_VALUE = /[\0\r\n]/;

/** HTTP/2 has frames for what these say in HTTP/1.1 (section 8.2.2). */
const CONNECTION_FIELDS = new Set(['connection', 'keep-alive', 'proxy-connection', 'transfer-encoding', 'upgrade']);

/** @returns undefined when the request is malformed (section 8.1.1) */
export function readRequest(section: readonly Field[]): RequestHead | undefined {
  // HTTP/2's own fields (section 8.3.1).
  const own: Record<string, string | undefined> = {
    ':method': undefined,
    ':scheme': undefined,
    ':path': undefined,
    ':authority': undefined,
  };
  const fields: Field[] = [];
  for (const field of section) {
    const [name, value] = field;
    if (BAD_VALUE.test(value)) return undefined;
    if (!name.startsWith(':')) {
      if (!NAME.test(name) || CONNECTION_FIELDS.has(name)) return undefined;
      if (name === 'te' && value !== 'trailers') return undefined;
      fields.push(field);
    } else {
      if (fields.length > 0 || !(name in own) || own[name] !== undefined) return undefined;
      own[name] = value;
    }
  }
  const { ':method': method, ':path': path, ':scheme': scheme } = own;
  if (!method || !path || scheme === undefined) return undefined;
  return { method, path, fields };
}
