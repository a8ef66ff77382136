import { printable } from './names.ts';

/** Node's types promise strings. But an empty name is undefined, and reading a badly encoded one throws. */
interface Named {
  readonly subject?: string | undefined;
  readonly issuer?: string | undefined;
  readonly subjectAltName?: string | undefined;
}

/** Returns a certificate's name for people to read: its subject, or else its first subjectAltName. A valid one may have no subject. */
export function nameOf(certificate: Named): string {
  return subjectOf(certificate) ?? 'no subject';
}

/** Like `nameOf`, but returns undefined for a certificate that names nobody. */
export function subjectOf(certificate: Named): string | undefined {
  return lineOf(() => certificate.subject) ?? lineOf(() => certificate.subjectAltName?.replace(/, .*$/s, ''));
}

/** Returns the issuer that the certificate names. */
export function issuerOf(certificate: Named): string {
  return lineOf(() => certificate.issuer) ?? 'an authority without a name';
}

/** Turns a name with one field per line into `CN=a,O=b`. */
function lineOf(read: () => string | undefined): string | undefined {
  try {
    const line = (read() ?? '').split('\n').map(escaped).join(',');
    return line === '' ? undefined : printable(line);
  } catch {
    return 'a name that cannot be read';
  }
}

/** Escapes commas, which look like a field's end. Node's fields are escaped already (RFC 4514 section 2.4), Deno's are not. */
function escaped(field: string): string {
  return field.replaceAll(/\\(?:[ "#+,;<=>\\]|[0-9A-F]{2})|[\\,]/g, (found) =>
    found.length > 1 ? found : `\\${found}`,
  );
}
