import type { X509Certificate } from 'node:crypto';
import { elements, first } from './der.ts';

/** What a certificate identifies its owner as. */
export type CertificateUse = 'client' | 'server';

/** Names and DER of the object identifiers, in hex. */
const PURPOSES = { client: ['clientAuth', '2b06010505070302'], server: ['serverAuth', '2b06010505070301'] } as const;

/** anyExtendedKeyUsage (RFC 5280 section 4.2.1.12), which Go accepts for every purpose too. */
const ANY_PURPOSE = '551d2500';

/** DER of object identifiers, in hex. */
const EXTENDED_KEY_USAGE = '551d25';
const SUBJECT_ALT_NAME = '551d11';

const TAG = { oid: 0x06, octets: 0x04, sequence: 0x30, dnsName: 0x82, uri: 0x86, extensions: 0xa3 };

/**
 * Returns the purpose that a certificate's extended key usage lacks. A certificate without the extension lacks every purpose (SECURITY.md).
 * Read here, because `keyUsage` of Deno's X509Certificate has only the plain usages.
 */
export function missingPurpose(certificate: Pick<X509Certificate, 'raw'>, use: CertificateUse): string | undefined {
  const [name, oid] = PURPOSES[use];
  const purposes = valuesIn(certificate, EXTENDED_KEY_USAGE, TAG.oid).map((value) => value.toString('hex'));
  return purposes.some((purpose) => purpose === oid || purpose === ANY_PURPOSE) ? undefined : name;
}

/** Not read from `subjectAltName`: in that text, a name could contain what looks like another one. */
export function dnsNames(certificate: X509Certificate): string[] {
  return valuesIn(certificate, SUBJECT_ALT_NAME, TAG.dnsName).map((value) => value.toString('latin1').toLowerCase());
}

/** The URIs of its subjectAltName. As for `dnsNames`, one that contains a comma or a quote is still one. */
export function uriNames(certificate: X509Certificate): string[] {
  return valuesIn(certificate, SUBJECT_ALT_NAME, TAG.uri).map((value) => value.toString('latin1'));
}

/** The elements of an extension's list that have a tag. */
function valuesIn({ raw }: Pick<X509Certificate, 'raw'>, extension: string, tag: number): Buffer[] {
  // Certificate, TBSCertificate, extensions [3], Extensions (RFC 5280 section 4.1).
  const body = first(first(raw, TAG.sequence), TAG.sequence);
  const all = elements(first(first(body, TAG.extensions), TAG.sequence));
  const found = all.map(({ value }) => value).find((value) => first(value, TAG.oid).toString('hex') === extension);
  if (!found) return [];
  const list = elements(first(first(found, TAG.octets), TAG.sequence));
  return list.filter((element) => element.tag === tag).map(({ value }) => value);
}
