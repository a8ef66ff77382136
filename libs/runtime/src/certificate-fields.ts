import type { X509Certificate } from 'node:crypto';
import { type Element, elements, first } from './der.ts';

/**
 * What a certificate says (RFC 5280 section 4.1), read from its DER. Node and Deno turn names into texts, each in its own way, in which
 * a name can look like two; and neither tells all that decides whether a certificate may issue others.
 */
export interface CertificateFields {
  /** Of the certificate, in upper-case hex without leading zeros. */
  readonly serial: string;
  /** The names' DER, in hex: equal for the same name. */
  readonly issuer: string;
  readonly subject: string;
  /** When it ends, in milliseconds since the epoch; NaN if that cannot be read. */
  readonly validTo: number;
  /** The public key (SubjectPublicKeyInfo): DER. */
  readonly publicKey: Buffer;
  readonly commonNames: readonly string[];
  /** The signature's algorithm: its object identifier's DER, in hex. */
  readonly signedWith: string;
  /** Whether it may issue certificates: basicConstraints and, where there is one, keyUsage. */
  readonly issues: boolean;
  /** How many authorities may stand between it and the last certificate. Unset: any number. */
  readonly pathLength: number | undefined;
  /** Which key it has, and which one signed it, as authorities name keys: hex. Empty: it does not say. */
  readonly keyId: string;
  readonly issuerKeyId: string;
  /** Purposes: object identifiers' DER, in hex. Unset: there is no such extension. */
  readonly purposes: readonly string[] | undefined;
  /** All extensions by object identifier (its DER in hex), with whether who does not know it must refuse the certificate. */
  readonly extensions: ReadonlyMap<string, { readonly critical: boolean; readonly value: Buffer }>;
}

export const EXTENSION = {
  subjectAltName: '551d11',
  basicConstraints: '551d13',
  keyUsage: '551d0f',
  extendedKeyUsage: '551d25',
  certificatePolicies: '551d20',
  nameConstraints: '551d1e',
  subjectKeyIdentifier: '551d0e',
  authorityKeyIdentifier: '551d23',
} as const;

const TAG = { boolean: 0x01, integer: 0x02, bits: 0x03, octets: 0x04, oid: 0x06, sequence: 0x30, set: 0x31 };
const NOTHING = Buffer.alloc(0);

const VERSION = 0xa0;

/** keyIdentifier, in authorityKeyIdentifier. */
const KEY_ID = 0x80;

const EXTENSIONS = 0xa3;

/** The object identifier of commonName, in hex. */
const COMMON_NAME = '550403';

/** keyCertSign in the first byte of keyUsage (RFC 5280 section 4.2.1.3). */
const CERT_SIGN = 0x04;

export function certificateFields({ raw }: Pick<X509Certificate, 'raw'>): CertificateFields {
  const whole = elements(first(raw, TAG.sequence));
  const parts = elements(whole[0]?.value ?? NOTHING);
  if (parts[0]?.tag === VERSION) parts.shift();
  const [serial, algorithm, issuer, validity, subject, publicKey] = parts;
  const extensions = extensionsIn(parts.find(({ tag }) => tag === EXTENSIONS));
  const held = (name: keyof typeof EXTENSION) => extensions.get(EXTENSION[name])?.value;
  const constraints = elements(first(held('basicConstraints') ?? NOTHING, TAG.sequence));
  const usage = held('keyUsage');
  const purposes = held('extendedKeyUsage');
  const length = constraints.find(({ tag }) => tag === TAG.integer)?.value;
  return {
    validTo: timeOf(elements(validity?.value ?? NOTHING)[1]),
    serial: hexOf(serial)
      .replace(/^0+(?=.)/, '')
      .toUpperCase(),
    issuer: hexOf(issuer),
    subject: hexOf(subject),
    publicKey: publicKey?.whole ?? NOTHING,
    commonNames: commonNamesIn(subject),
    signedWith: first(algorithm?.value ?? NOTHING, TAG.oid).toString('hex'),
    issues: constraints.some(({ tag, value }) => tag === TAG.boolean && value[0] === 0xff) && maySign(usage),
    pathLength: length && Number.parseInt(length.toString('hex'), 16),
    keyId: first(held('subjectKeyIdentifier') ?? NOTHING, TAG.octets).toString('hex'),
    issuerKeyId: first(first(held('authorityKeyIdentifier') ?? NOTHING, TAG.sequence), KEY_ID).toString('hex'),
    purposes: purposes && elements(first(purposes, TAG.sequence)).map(({ value }) => value.toString('hex')),
    extensions,
  };
}

function hexOf(element: Element | undefined): string {
  return element?.value.toString('hex') ?? '';
}

function maySign(usage: Buffer | undefined): boolean {
  if (!usage) return true;
  // The first byte of a BIT STRING counts the bits that are not used at its end.
  return ((first(usage, TAG.bits)[1] ?? 0) & CERT_SIGN) !== 0;
}

function extensionsIn(list: Element | undefined): CertificateFields['extensions'] {
  const all = elements(first(list?.value ?? NOTHING, TAG.sequence));
  return new Map(
    all.map(({ value }) => {
      const critical = first(value, TAG.boolean)[0] === 0xff;
      return [first(value, TAG.oid).toString('hex'), { critical, value: first(value, TAG.octets) }];
    }),
  );
}

/** Encodings of a name's text that can be read as UTF-8: UTF8String, PrintableString and IA5String. */
const TEXTS = new Set([0x0c, 0x13, 0x16]);

function commonNamesIn(subject: Element | undefined): string[] {
  const attributes = elements(subject?.value ?? NOTHING).flatMap(({ value }) => elements(value));
  return attributes.flatMap(({ value }) => {
    const [type, text] = elements(value);
    if (type?.value.toString('hex') !== COMMON_NAME || !text) return [];
    // Another encoding is a name too, which nobody can have.
    return [TEXTS.has(text.tag) ? text.value.toString('utf8') : ''];
  });
}

/** A UTCTime of two-digit years (1950 to 2049), or a GeneralizedTime (RFC 5280 section 4.1.2.5). */
function timeOf(element: Element | undefined): number {
  const text = element?.value.toString('latin1') ?? '';
  const full = text.length === 13 ? `${text < '5' ? '20' : '19'}${text}` : text;
  return Date.parse(full.replace(/^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z$/, '$1-$2-$3T$4:$5:$6Z'));
}
