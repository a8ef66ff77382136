import { printable } from './names.ts';

/** Node's types promise texts. Of a name that is empty there is none, and one that is encoded badly throws when it is read. */
interface Named {
  readonly subject?: string | undefined;
  readonly issuer?: string | undefined;
  readonly subjectAltName?: string | undefined;
}

/** What a certificate is called where people read it: a good one may have no subject, only other names. */
export function nameOf(certificate: Named): string {
  return subjectOf(certificate) ?? 'no subject';
}

/** As `nameOf`; undefined for a certificate that names nobody. */
export function subjectOf(certificate: Named): string | undefined {
  return lineOf(() => certificate.subject) ?? lineOf(() => certificate.subjectAltName?.replace(/, .*$/s, ''));
}

/** Who issued it, by its own words. */
export function issuerOf(certificate: Named): string {
  return lineOf(() => certificate.issuer) ?? 'an authority without a name';
}

/** `CN=a,O=b` of a name that has a field on each line. */
function lineOf(read: () => string | undefined): string | undefined {
  try {
    const line = (read() ?? '').split('\n').map(escaped).join(',');
    return line === '' ? undefined : printable(line);
  } catch {
    return 'a name that cannot be read';
  }
}

/** Node escapes as RFC 4514, 2.4 has it, Deno nothing: a comma within a field must not look like its end. What is escaped stays so. */
function escaped(field: string): string {
  return field.replaceAll(/\\(?:[ "#+,;<=>\\]|[0-9A-F]{2})|[\\,]/g, (found) =>
    found.length > 1 ? found : `\\${found}`,
  );
}
