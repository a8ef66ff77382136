import type { X509Certificate } from 'node:crypto';
import { issuerOf, nameOf, printable } from '@isthmus/tunnel';

/** What a certificate is shown for. */
export type Use = 'client' | 'server';

const PURPOSES = { client: ['clientAuth', '2b06010505070302'], server: ['serverAuth', '2b06010505070301'] } as const;

/** anyExtendedKeyUsage (RFC 5280 section 4.2.1.12), which Go takes for every purpose too. */
const ANY_PURPOSE = '551d2500';

/** DER of object identifiers, in hex. */
const EXTENDED_KEY_USAGE = '551d25';
const SUBJECT_ALT_NAME = '551d11';

const TAG = { oid: 0x06, octets: 0x04, sequence: 0x30, dnsName: 0x82, extensions: 0xa3 };

/** What is asked of a certificate beside that it is in its time and comes from a trusted authority. */
export interface Wanted {
  readonly use: Use;
  /** A name that it must have (subjectAltName, DNS). */
  readonly role?: string | undefined;
}

/** `CN=a,O=b, serial 01AB`, as both ends write it. */
export function describe(certificate: X509Certificate): string {
  return `${nameOf(certificate)}, serial ${certificate.serialNumber}`;
}

/**
 * Why a certificate is of no use here, in words; undefined for a good one. OpenSSL stops at its first finding and rustls names none,
 * so that dates and purposes are looked at here.
 * @param untrusted what the runtime found wrong with its chain; undefined when it holds
 */
export function faultOf(
  certificate: X509Certificate,
  untrusted: string | undefined,
  { use, role }: Wanted,
): string | undefined {
  const now = Date.now();
  const [from, to] = [Date.parse(certificate.validFrom), Date.parse(certificate.validTo)];
  if (from > now) return `it is not valid before ${new Date(from).toISOString()}: is the clock right?`;
  if (to < now) return `it ran out at ${new Date(to).toISOString()}: renew it`;
  const [name, oid] = PURPOSES[use];
  // A certificate without the extension is good for every purpose (RFC 5280 section 4.2.1.12), and so for none in particular.
  if (!extendedKeyUsage(certificate).some((purpose) => purpose === oid || purpose === ANY_PURPOSE)) {
    return `its extended key usage lacks ${name}: issue it with extended key usage ${name}`;
  }
  if (untrusted !== undefined) return chainFault(certificate, untrusted);
  if (role !== undefined && !dnsNames(certificate).includes(role)) {
    return `it does not prove the role ${role} (subjectAltName DNS:${role}); its names: ${printable(dnsNames(certificate).join(', ')) || 'none'}`;
  }
  return undefined;
}

function chainFault(certificate: X509Certificate, untrusted: string): string {
  const by = issuerOf(certificate);
  if (/^(UNABLE_TO|SELF_SIGNED|DEPTH_ZERO|CERT_SIGNATURE|UNKNOWN)/.test(untrusted)) {
    return `it was issued by ${by}, which is no authority that is trusted here`;
  }
  if (untrusted === 'CERT_HAS_EXPIRED') return `an authority above it, ${by} or further up, has run out`;
  return `it was issued by ${by}, and does not hold (${untrusted})`;
}

/** Object identifiers as DER in hex. `keyUsage` of Deno's X509Certificate has the plain ones. */
function extendedKeyUsage(certificate: X509Certificate): string[] {
  return valuesIn(certificate, EXTENDED_KEY_USAGE, TAG.oid).map((value) => value.toString('hex'));
}

/** Not of `subjectAltName`, a text in which a name could contain what looks like another. */
export function dnsNames(certificate: X509Certificate): string[] {
  return valuesIn(certificate, SUBJECT_ALT_NAME, TAG.dnsName).map((value) => value.toString('latin1').toLowerCase());
}

/** The elements of an extension's list that have a tag. */
function valuesIn({ raw }: X509Certificate, extension: string, tag: number): Buffer[] {
  // Certificate, TBSCertificate, extensions [3], Extensions (RFC 5280 section 4.1).
  const body = first(first(raw, TAG.sequence), TAG.sequence);
  const all = elements(first(first(body, TAG.extensions), TAG.sequence));
  const found = all.map(({ value }) => value).find((value) => first(value, TAG.oid).toString('hex') === extension);
  if (!found) return [];
  const list = elements(first(first(found, TAG.octets), TAG.sequence));
  return list.filter((element) => element.tag === tag).map(({ value }) => value);
}

const NOTHING = Buffer.alloc(0);

function first(der: Buffer, tag: number): Buffer {
  return elements(der).find((element) => element.tag === tag)?.value ?? NOTHING;
}

/** The elements in a row. What was parsed by OpenSSL or rustls before is well formed; what is not ends the row. */
function elements(der: Buffer): { readonly tag: number; readonly value: Buffer }[] {
  const found: { tag: number; value: Buffer }[] = [];
  for (let at = 0; at + 2 <= der.length; ) {
    const short = der[at + 1] as number;
    const bytes = short < 0x80 ? 0 : short & 0x7f;
    if (bytes > 4 || at + 2 + bytes > der.length) break;
    const length = bytes === 0 ? short : der.readUIntBE(at + 2, bytes);
    const start = at + 2 + bytes;
    found.push({ tag: der[at] as number, value: der.subarray(start, start + length) });
    at = start + length;
  }
  return found;
}
